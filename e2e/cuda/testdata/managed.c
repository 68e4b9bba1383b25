/* Managed memory by the driver API: one address for the program and kernels, copies and sets, and what
 * is advised of it. */
#include "check.h"

#include <string.h>

static const char twice[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
  ".visible .entry twice(.param .u64 p) {\n"
  "  .reg .b64 %rd<4>; .reg .b32 %r<3>;\n"
  "  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;\n"
  "  ld.global.u32 %r2, [%rd3]; add.u32 %r2, %r2, %r2; st.global.u32 [%rd3], %r2; ret;\n}\n";

static int attribute(CUmem_range_attribute a, CUdeviceptr p, size_t n) {
  int v = 99;
  OK(cuMemRangeGetAttribute(&v, sizeof v, a, p, n));
  return v;
}

int main(void) {
  CUdevice d;
  CUcontext x;
  CUmodule m;
  CUfunction f;
  CUstream s;
  OK(cuInit(0));
  OK(cuDeviceGet(&d, 0));
  OK(cuCtxCreate(&x, 0, d));
  OK(cuModuleLoadData(&m, twice));
  OK(cuModuleGetFunction(&f, m, "twice"));
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));

  enum { N = 256, SIZE = 5 * 4096 };
  CUdeviceptr p, base, other;
  size_t size;
  OK(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
  unsigned *host = (unsigned *)p;
  for (unsigned i = 0; i < N; i++) {
    TRUE(host[i] == 0);
    host[i] = i + 1;
  }
  void *args[] = {&p};
  for (int i = 0; i < 3; i++) OK(cuLaunchKernel(f, 1, 1, 1, N, 1, 1, 0, s, args, NULL));
  OK(cuStreamSynchronize(s));
  for (unsigned i = 0; i < N; i++) TRUE(host[i] == (i + 1) * 8);

  /* Copies and sets are in order with kernels. */
  unsigned copy[N];
  OK(cuMemAlloc(&other, sizeof copy));
  OK(cuLaunchKernel(f, 1, 1, 1, N, 1, 1, 0, s, args, NULL));
  OK(cuMemcpyAsync(other, p, sizeof copy, s));
  OK(cuMemsetD32Async(p, 7, N, s));
  OK(cuMemcpyDtoHAsync(copy, other, sizeof copy, s));
  OK(cuStreamSynchronize(s));
  for (unsigned i = 0; i < N; i++) TRUE(copy[i] == (i + 1) * 16 && host[i] == 7);
  OK(cuMemcpyHtoD(p, copy, sizeof copy));
  TRUE(memcmp(host, copy, sizeof copy) == 0);
  OK(cuMemsetD32(p, 9, N));
  TRUE(host[0] == 9 && host[N - 1] == 9);
  OK(cuMemcpyDtoD(p, other, sizeof copy));
  TRUE(host[0] == 16 && host[N - 1] == N * 16);
  memset(copy, 0, sizeof copy);
  OK(cuMemcpyDtoH(copy, p, sizeof copy));
  TRUE(memcmp(host, copy, sizeof copy) == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p, 0, SIZE + 4096));

  /* Attributes of the address. */
  unsigned managed = 9, type = 9;
  void *at = NULL;
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 5));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
  OK(cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 5));
  TRUE(managed == 1 && type == CU_MEMORYTYPE_DEVICE && (CUdeviceptr)at == p + 5);
  OK(cuMemGetAddressRange(&base, &size, p + 100));
  TRUE(base == p && size == SIZE);

  /* Advice is kept for pages. */
  OK(cuMemAdvise(p, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, d));
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE) == 1);
  OK(cuMemAdvise(p + 4096, 1, CU_MEM_ADVISE_UNSET_READ_MOSTLY, d));
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, SIZE) == 0);
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p + 8192, 100) == 1);
  CUmemLocation cpu = {.type = CU_MEM_LOCATION_TYPE_HOST}, none = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 3};
  OK(cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, cpu));
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, SIZE) == CU_DEVICE_CPU);
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, p, SIZE) == CU_MEM_LOCATION_TYPE_HOST);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise_v2(p, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, none));
  OK(cuMemPrefetchAsync(p, SIZE, d, s));
  OK(cuMemPrefetchAsync_v2(p, 4096, cpu, 0, s));
  int mostly = 9, last = 9;
  void *to[] = {&mostly, &last};
  size_t sizes[] = {sizeof mostly, sizeof last};
  CUmem_range_attribute ask[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
  OK(cuMemRangeGetAttributes(to, sizes, ask, 2, p, 4096));
  TRUE(mostly == 1 && last == CU_DEVICE_CPU);
  TRUE(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p + 4096, 4096) == d);
  OK(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_SINGLE));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(NULL, p, 0, CU_MEM_ATTACH_SINGLE));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, other, 0, CU_MEM_ATTACH_GLOBAL));

  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&base, SIZE, CU_MEM_ATTACH_SINGLE));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(NULL, SIZE, CU_MEM_ATTACH_GLOBAL));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&base, (size_t)1 << 40, CU_MEM_ATTACH_GLOBAL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p + 4096));
  OK(cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(p, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, d));
  OK(cuMemFree(other));

  /* Kernels reach mapped memory of any size, or there is none of it: two of 12 MiB where guest and host
   * share 64 MiB or more, not 1 GiB. */
  const size_t large = 12 << 20;
  unsigned *mapped[2];
  for (int i = 0; i < 2; i++) {
    OK(cuMemHostAlloc((void **)&mapped[i], large, CU_MEMHOSTALLOC_DEVICEMAP));
    unsigned *last = mapped[i] + large / sizeof *last - N;
    for (unsigned j = 0; j < N; j++) last[j] = i + j;
    OK(cuMemHostGetDevicePointer(&base, mapped[i], 0));
    p = base + large - N * sizeof *last;
    OK(cuLaunchKernel(f, 1, 1, 1, N, 1, 1, 0, s, args, NULL));
    OK(cuStreamSynchronize(s));
    for (unsigned j = 0; j < N; j++) TRUE(last[j] == 2 * (i + j));
  }
  void *none_left;
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&none_left, (size_t)1 << 30, CU_MEMHOSTALLOC_DEVICEMAP));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&base, (size_t)1 << 30, CU_MEM_ATTACH_GLOBAL));
  for (int i = 0; i < 2; i++) OK(cuMemFreeHost(mapped[i]));
  OK(cuMemAllocManaged(&base, 2 * large, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemFree(base));
  OK(cuCtxDestroy(x));
  puts("right");
  return 0;
}
