/* Ways to launch a kernel, and what is refused. */
#include "check.h"

/* mixed(out, char, double, short, struct of 12 bytes): out[0..4] */
static const char mixed[] = PTX_HEAD
    ".visible .entry mixed(.param .u64 out, .param .u8 a, .param .f64 b, .param .u16 c, .param .align 4 .b8 d[12]) {\n"
    "  .reg .b64 %rd<2>; .reg .b32 %r<5>; .reg .f64 %fd<2>; .reg .b16 %rs<3>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u8 %rs1, [a]; cvt.u32.u16 %r1, %rs1; st.global.u32 [%rd1], %r1;\n"
    "  ld.param.f64 %fd1, [b]; cvt.rzi.u32.f64 %r2, %fd1; st.global.u32 [%rd1+4], %r2;\n"
    "  ld.param.u16 %rs2, [c]; cvt.u32.u16 %r3, %rs2; st.global.u32 [%rd1+8], %r3;\n"
    "  ld.param.u32 %r4, [d+8]; st.global.u32 [%rd1+12], %r4; ret;\n}\n"
    /* dyn(out): stores the last of its dynamic shared words, which each thread writes */
    ".extern .shared .align 4 .b8 pool[];\n"
    ".visible .entry dyn(.param .u64 out) {\n"
    "  .reg .b64 %rd<2>; .reg .b32 %r<6>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, pool; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;\n"
    "  st.shared.u32 [%r2], %r1; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra DONE;\n"
    "  mov.u32 %r4, pool; ld.shared.u32 %r5, [%r4+124]; st.global.u32 [%rd1], %r5;\n"
    "DONE: ret;\n}\n";

static unsigned out_values[4];

static void read_out(CUdeviceptr out) { OK(cuMemcpyDtoH(out_values, out, sizeof out_values)); }

int main(void) {
  CUcontext ctx = begin();
  CUmodule m;
  CUfunction f, dyn;
  CUdeviceptr out;
  OK(cuModuleLoadData(&m, mixed));
  OK(cuModuleGetFunction(&f, m, "mixed"));
  OK(cuModuleGetFunction(&dyn, m, "dyn"));
  OK(cuMemAlloc(&out, 64));
  char a = 17;
  double b = 4242.5;
  short c = 777;
  struct { int x, y, z; } d = {1, 2, 3};
  void *params[] = {&out, &a, &b, &c, &d};
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  read_out(out);
  TRUE(out_values[0] == 17 && out_values[1] == 4242 && out_values[2] == 777 && out_values[3] == 3);

  /* Packed. */
  struct { CUdeviceptr out; char a; double b; short c; int d[3]; } packed = {out, 18, 11, 12, {0, 0, 13}};
  size_t size = sizeof packed;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  size = 40;
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  read_out(out);
  TRUE(out_values[0] == 18 && out_values[1] == 11 && out_values[2] == 12 && out_values[3] == 13);
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
  size = 4096;
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));

  /* CUDA 3's functions. */
  OK(cuParamSetSize(f, 40));
  OK(cuParamSetv(f, 0, &out, 8));
  OK(cuParamSeti(f, 8, 19));
  OK(cuParamSetv(f, 16, &(double){21}, 8));
  OK(cuParamSeti(f, 24, 22));
  OK(cuParamSeti(f, 36, 23));
  OK(cuParamSetf(f, 28, 1.5f));
  OK(cuFuncSetBlockShape(f, 1, 1, 1));
  OK(cuFuncSetSharedSize(f, 0));
  OK(cuLaunch(f));
  OK(cuLaunchGrid(f, 1, 1));
  OK(cuLaunchGridAsync(f, 1, 1, NULL));
  read_out(out);
  TRUE(out_values[0] == 19 && out_values[1] == 21 && out_values[2] == 22 && out_values[3] == 23);
  WANT(CUDA_ERROR_INVALID_VALUE, cuParamSeti(f, 40, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape(f, 0, 1, 1));

  /* With attributes. */
  CUlaunchAttribute attributes[] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1},
                                    {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
                                    {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1}};
  CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .attrs = attributes, .numAttrs = 3};
  a = 20;
  OK(cuLaunchKernelEx(&config, f, params, NULL));
  read_out(out);
  TRUE(out_values[0] == 20);
  attributes[1].value.clusterDim.x = 2;
  WANT(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, f, params, NULL));
  attributes[1].id = 99;
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, f, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(NULL, f, params, NULL));
  OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params));
  WANT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel(f, 1000000, 1, 1, 32, 1, 1, 0, NULL, params));

  /* Shared memory. */
  void *dyn_params[] = {&out};
  OK(cuLaunchKernel(dyn, 1, 1, 1, 32, 1, 1, 128, NULL, dyn_params, NULL));
  read_out(out);
  TRUE(out_values[0] == 31);
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(dyn, 1, 1, 1, 32, 1, 1, 60 << 10, NULL, dyn_params, NULL));
  OK(cuFuncSetAttribute(dyn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 << 10));
  OK(cuLaunchKernel(dyn, 1, 1, 1, 32, 1, 1, 60 << 10, NULL, dyn_params, NULL));
  OK(cuCtxSynchronize());

  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 0, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1 << 16, 1, 1, 1, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 64, 64, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 65, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[5]){0}, NULL));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)main, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, (CUstream)f, params, NULL));

  /* More launches than a channel holds. */
  for (int i = 0; i < 6000; i++) OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuCtxSynchronize());

  /* Occupancy. */
  int blocks, grid, block;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, 0));
  TRUE(blocks >= 1 && blocks <= 32);
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 128, 0, CU_OCCUPANCY_DEFAULT));
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 2048, 0));
  TRUE(blocks == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0));
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
  TRUE(grid >= 1 && block >= 32 && block <= 1024 && block % 32 == 0);
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, f, NULL, 0, 96, CU_OCCUPANCY_DEFAULT));
  TRUE(block <= 96);
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&size, f, 1, 128));
  TRUE(size >= 32 << 10);
  OK(cuCtxDestroy(ctx));
}
