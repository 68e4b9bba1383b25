/* Modules, libraries, kernels and linking. */
#define CUDA_VERSION 12090
#include "check.h"

static const char globals[] = PTX_HEAD
    ".visible .global .align 4 .b32 counter = 41;\n"
    ".visible .const .align 4 .b32 table[4] = {1, 2, 3, 4};\n"
    ".visible .entry step(.param .u64 out) {\n"
    "  .reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [counter]; ld.const.u32 %r2, [table+8]; add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3;\n"
    "  ret;\n}\n"
    ".visible .entry nothing() { ret; }\n";

static const char caller[] = PTX_HEAD
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".visible .entry main$_omp_fn$0(.param .u64 out) {\n"
    "  .reg .b32 %r<3>; .reg .b64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, 21;\n"
    "  { .param .b32 x; .param .b32 r; st.param.b32 [x], %r1; call (r), twice, (x); ld.param.b32 %r2, [r]; }\n"
    "  st.global.u32 [%rd1], %r2; ret;\n}\n";

static const char callee[] = PTX_HEAD
    ".visible .func (.param .b32 r) twice(.param .b32 x) {\n"
    "  .reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;\n}\n";

static unsigned run(CUfunction f, CUdeviceptr out) {
  unsigned v = 0;
  void *params[] = {&out};
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH(&v, out, 4));
  return v;
}

int main(int argc, char **argv) {
  CUcontext ctx = begin();
  CUmodule m, other;
  CUfunction f, g, both[2];
  CUdeviceptr out, p;
  size_t size, at;
  const char *name;
  unsigned v, count;
  int n;
  OK(cuMemAlloc(&out, 64));

  OK(cuModuleLoadData(&m, globals));
  OK(cuModuleGetFunction(&f, m, "step"));
  OK(cuModuleGetFunction(&g, m, "step"));
  TRUE(f == g);
  TRUE(run(f, out) == 44);
  OK(cuModuleGetGlobal(&p, &size, m, "counter"));
  TRUE(size == 4);
  v = 97;
  OK(cuMemcpyHtoD(p, &v, 4));
  CUdeviceptr base = 0;
  size = 0;
  OK(cuMemGetAddressRange(&base, &size, p + 3));
  TRUE(base == p && size == 4);
  /* A kernel may store 4 bytes into an allocation of 1, which copies may not. */
  CUdeviceptr small;
  void *one[] = {&small};
  OK(cuMemAlloc(&small, 1));
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, one, NULL));
  OK(cuCtxSynchronize());
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&n, small, 4));
  OK(cuMemFree(small));
  TRUE(run(f, out) == 100);
  OK(cuModuleGetGlobal(&p, NULL, m, "table"));
  OK(cuModuleGetGlobal(NULL, &size, m, "table"));
  TRUE(size == 16);
  WANT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&g, m, "steps"));
  WANT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&p, &size, m, "nowhere"));
  WANT(CUDA_ERROR_INVALID_VALUE, cuModuleGetFunction(&g, m, NULL));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&g, (CUmodule)ctx, "step"));
  OK(cuModuleGetFunctionCount(&count, m));
  TRUE(count == 2);
  OK(cuModuleEnumerateFunctions(both, 2, m));
  TRUE(both[0] == f);
  CUmoduleLoadingMode mode;
  OK(cuModuleGetLoadingMode(&mode));

  OK(cuFuncGetName(&name, f));
  TRUE(strcmp(name, "step") == 0);
  OK(cuFuncGetModule(&other, f));
  TRUE(other == m);
  OK(cuFuncGetParamInfo(f, 0, &at, &size));
  TRUE(at == 0 && size == 8);
  OK(cuFuncGetParamCount(f, &size));
  TRUE(size == 1);
  WANT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(f, 1, &at, &size));
  OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
  TRUE(n >= 32 && n <= 1024);
  OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
  OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
  OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000));
  OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
  TRUE(n == 1000);
  WANT(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30));
  OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  OK(cuFuncSetCacheConfig(f, CU_FUNC_CACHE_PREFER_SHARED));
  OK(cuFuncSetSharedMemConfig(f, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  CUfunctionLoadingState state;
  OK(cuFuncIsLoaded(&state, f));
  TRUE(state == CU_FUNCTION_LOADING_STATE_LOADED);
  OK(cuFuncLoad(f));
  OK(cuModuleUnload(m));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));

  /* Options, and a compiler's messages. */
  char info[512], errors[512] = "";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS, CU_JIT_WALL_TIME};
  void *values[] = {info, (void *)sizeof info, errors, (void *)sizeof errors, (void *)32, NULL};
  OK(cuModuleLoadDataEx(&m, globals, 6, options, values));
  OK(cuModuleUnload(m));
  values[1] = (void *)sizeof info;
  values[3] = (void *)sizeof errors;
  CUresult bad = cuModuleLoadDataEx(&m, PTX_HEAD ".visible .entry x() { mov.u32 %r1, ; }", 6, options, values);
  TRUE(bad == CUDA_ERROR_INVALID_PTX || bad == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  TRUE(strlen(errors) > 0 && (size_t)values[3] == strlen(errors));
  WANT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "\x01\x02\x03\x04 nothing known"));
  WANT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&m, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(NULL, globals));
  WANT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent/file.ptx"));
  if (argc > 1) { /* a file of PTX, and a fat binary */
    FILE *file = fopen(argv[1], "w");
    TRUE(file && fputs(globals, file) >= 0 && fclose(file) == 0);
    OK(cuModuleLoad(&m, argv[1]));
    OK(cuModuleUnload(m));
  }
  if (argc > 2) {
    static char image[1 << 20];
    FILE *file = fopen(argv[2], "r");
    TRUE(file && fread(image, 1, sizeof image, file) > 0 && fclose(file) == 0);
    OK(cuModuleLoadFatBinary(&m, image));
    OK(cuModuleGetFunction(&f, m, "step"));
    TRUE(run(f, out) == 44);
    OK(cuModuleUnload(m));
    struct { int magic, version; void *data, *list; } wrapper = {0x466243b1, 1, image, NULL};
    OK(cuModuleLoadData(&m, &wrapper));
    OK(cuModuleUnload(m));
    memset(image + 16, 0xff, 64);
    WANT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadFatBinary(&m, image));
  }

  /* Libraries: a kernel is usable as a function in every context. */
  CUlibrary l, of;
  CUkernel k, ks[2];
  OK(cuLibraryLoadData(&l, globals, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernelCount(&count, l));
  TRUE(count == 2);
  OK(cuLibraryEnumerateKernels(ks, 2, l));
  OK(cuLibraryGetKernel(&k, l, "step"));
  TRUE(k == ks[0]);
  WANT(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&k, l, "absent"));
  OK(cuKernelGetName(&name, ks[1]));
  TRUE(strcmp(name, "nothing") == 0);
  OK(cuKernelGetLibrary(&of, ks[0]));
  TRUE(of == l);
  OK(cuKernelGetParamInfo(ks[0], 0, &at, &size));
  TRUE(size == 8);
  OK(cuKernelGetParamCount(ks[0], &size));
  TRUE(size == 1);
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 2048, ks[0], 0));
  OK(cuKernelGetAttribute(&n, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ks[0], 0));
  TRUE(n == 2048);
  OK(cuKernelSetCacheConfig(ks[0], CU_FUNC_CACHE_PREFER_L1, 0));
  TRUE(run((CUfunction)ks[0], out) == 44);
  OK(cuKernelGetFunction(&f, ks[0]));
  TRUE(run(f, out) == 44);
  OK(cuLibraryGetGlobal(&p, &size, l, "counter"));
  TRUE(size == 4);
  WANT(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&p, &size, l, "counter"));
  void *unified;
  WANT(CUDA_ERROR_NOT_FOUND, cuLibraryGetUnifiedFunction(&unified, l, "step"));
  OK(cuLibraryGetModule(&m, l));
  CUcontext second;
  OK(cuCtxCreate(&second, 0, 0));
  CUdeviceptr out2;
  OK(cuMemAlloc(&out2, 4));
  TRUE(run((CUfunction)ks[0], out2) == 44);
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&out2}, NULL)); /* of the other context */
  OK(cuCtxDestroy(second));
  OK(cuLibraryUnload(l));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(l));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&f, ks[0]));
  WANT(CUDA_ERROR_INVALID_PTX, cuLibraryLoadData(&l, PTX_HEAD ".visible .entry x() {", NULL, NULL, 0, NULL, NULL, 0));
  if (argc > 1) {
    OK(cuLibraryLoadFromFile(&l, argv[1], NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryUnload(l));
  }

  /* Linking. */
  CUlinkState link;
  void *image;
  values[1] = (void *)sizeof info;
  values[3] = (void *)sizeof errors;
  OK(cuLinkCreate(4, options, values, &link));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)caller, sizeof caller, "caller", 0, NULL, NULL));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)callee, sizeof callee, NULL, 0, NULL, NULL));
  OK(cuLinkComplete(link, &image, &size));
  OK(cuModuleLoadData(&m, image));
  OK(cuLinkDestroy(link));
  OK(cuModuleGetFunction(&f, m, "main$_omp_fn$0"));
  TRUE(run(f, out) == 42);
  values[1] = (void *)sizeof info;
  values[3] = (void *)sizeof errors;
  OK(cuLinkCreate(4, options, values, &link));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)caller, sizeof caller, "caller", 0, NULL, NULL));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)globals, sizeof globals, "globals", 0, NULL, NULL));
  WANT(CUDA_ERROR_INVALID_PTX, cuLinkComplete(link, &image, &size));
  TRUE(strstr(errors, "twice") != NULL);
  OK(cuLinkDestroy(link));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
  if (argc > 1) {
    OK(cuLinkCreate(0, NULL, NULL, &link));
    OK(cuLinkAddFile(link, CU_JIT_INPUT_PTX, argv[1], 0, NULL, NULL));
    WANT(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
    OK(cuLinkComplete(link, &image, NULL));
    OK(cuLinkDestroy(link));
  }
  OK(cuCtxDestroy(ctx));
}
