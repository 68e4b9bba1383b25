/* Memory on the GPU and in the process: allocation, sets, linear copies, attributes of pointers. */
#include "check.h"

#include <sys/mman.h>

enum { N = 5 << 20 };

static void sizes(void) {
  CUdeviceptr p, q, base;
  size_t pitch, size, before, after, total;
  OK(cuMemGetInfo(&before, &total));
  TRUE(before <= total && total > 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 4));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, (size_t)1 << 60));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, total + (64 << 20)));
  OK(cuMemAlloc(&p, 16 << 20));
  OK(cuMemGetInfo(&after, &total));
  TRUE(before - after >= 16 << 20);
  OK(cuMemGetAddressRange(&base, &size, p + 12345));
  TRUE(base == p && size == 16 << 20);
  WANT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, 0x10));
  /* Nothing of the process's own is where GPU memory is. */
  void *here = mmap((void *)(p & ~(CUdeviceptr)0xfff), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  TRUE(here == MAP_FAILED || here != (void *)(p & ~(CUdeviceptr)0xfff));
  OK(cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(0x1234));
  OK(cuMemFree(0));
  OK(cuMemAllocPitch(&q, &pitch, 1000, 10, 4));
  TRUE(pitch >= 1000 && pitch % 256 == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&q, &pitch, 1000, 10, 3));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(q + 4));
  OK(cuMemFree(q));
}

static void copies(CUstream s) {
  CUdeviceptr p, q;
  unsigned char *a = malloc(N), *b = malloc(N), *pinned;
  for (int i = 0; i < N; i++) a[i] = (unsigned char)(i * 7 + i / 251);
  OK(cuMemAlloc(&p, N));
  OK(cuMemAlloc(&q, N));
  OK(cuMemcpyHtoD(p, a, N));
  OK(cuMemcpyDtoD(q, p, N));
  memset(b, 0, N);
  OK(cuMemcpyDtoH(b, q, N));
  TRUE(memcmp(a, b, N) == 0);
  memset(b, 0, N);
  OK(cuMemcpyDtoH(b, q + 1000, 1000));
  TRUE(memcmp(a + 1000, b, 1000) == 0);

  OK(cuMemHostAlloc((void **)&pinned, N, CU_MEMHOSTALLOC_PORTABLE));
  memcpy(pinned, a, N);
  OK(cuMemsetD8Async(q, 0, N, s));
  OK(cuMemcpyHtoDAsync(p, pinned, N, s));
  OK(cuMemcpyDtoDAsync(q, p, N, s));
  OK(cuMemcpyDtoHAsync(pinned, q, N, s));
  OK(cuStreamSynchronize(s));
  TRUE(memcmp(a, pinned, N) == 0);
  unsigned flags;
  OK(cuMemHostGetFlags(&flags, pinned));
  TRUE(flags == CU_MEMHOSTALLOC_PORTABLE);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, a));

  /* By the addresses alone. */
  OK(cuMemcpy((CUdeviceptr)b, q, N));
  TRUE(memcmp(a, b, N) == 0);
  memset(b, 1, N);
  OK(cuMemcpyAsync(p, (CUdeviceptr)b, N, s));
  OK(cuMemcpyAsync(q, p, N, s));
  OK(cuMemcpyAsync((CUdeviceptr)a, q, N, s));
  OK(cuStreamSynchronize(s));
  TRUE(a[0] == 1 && a[N - 1] == 1);
  OK(cuMemcpy((CUdeviceptr)pinned, (CUdeviceptr)a, N));
  TRUE(pinned[N / 2] == 1);

  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p, a, N + 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(a, p + 1, N));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p, NULL, 4));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(0, a, 4));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(p, (void *)0x10, 4)); /* not mapped in the process */
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(q, p, (size_t)1 << 62));
  OK(cuMemcpyHtoD(p, a, 0));
  OK(cuMemFreeHost(pinned));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(a));
  OK(cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(a, p, 4)); /* freed */
  OK(cuMemFree(q));
  free(a);
  free(b);
}

static void sets(CUstream s) {
  CUdeviceptr p;
  unsigned char b[4096];
  OK(cuMemAlloc(&p, sizeof b));
  OK(cuMemsetD8(p, 0xa5, 4096));
  OK(cuMemsetD16(p, 0x1234, 100));
  OK(cuMemsetD32(p + 256, 0xdeadbeef, 10));
  OK(cuMemsetD16Async(p + 512, 0x5678, 3, s));
  OK(cuMemsetD32Async(p + 520, 0x01020304, 1, s));
  OK(cuMemsetD2D8(p + 1024, 64, 1, 10, 4));
  OK(cuMemsetD2D16(p + 2048, 64, 2, 10, 4));
  OK(cuMemsetD2D32(p + 3072, 64, 3, 10, 4));
  OK(cuMemsetD2D8Async(p + 1024 + 256, 64, 4, 1, 2, s));
  OK(cuMemsetD2D16Async(p + 2048 + 256, 64, 5, 1, 2, s));
  OK(cuMemsetD2D32Async(p + 3072 + 256, 64, 6, 1, 2, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(b, p, sizeof b));
  TRUE(*(unsigned short *)(b + 198) == 0x1234 && b[200] == 0xa5 && *(unsigned *)(b + 292) == 0xdeadbeef && b[296] == 0xa5);
  TRUE(*(unsigned short *)(b + 516) == 0x5678 && *(unsigned *)(b + 520) == 0x01020304);
  TRUE(b[1024] == 1 && b[1024 + 3 * 64 + 9] == 1 && b[1024 + 10] == 0xa5);
  TRUE(*(unsigned short *)(b + 2048 + 64) == 2 && *(unsigned *)(b + 3072 + 128) == 3);
  TRUE(b[1280] == 4 && *(unsigned short *)(b + 2304 + 64) == 5 && *(unsigned *)(b + 3328 + 64) == 6);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p + 1, 0, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(p, 0, 4097));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(p, 4, 0, 10, 2));
  OK(cuMemsetD8(p, 0, 0));
  // The program's own memory is none of the GPU's, which the call says itself.
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8((CUdeviceptr)b, 0, 4));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async((CUdeviceptr)b, 0, 1, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync((CUdeviceptr)b, b + 64, 4, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(b, (CUdeviceptr)b + 64, 4));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(p, (CUdeviceptr)b, 4, s));
  OK(cuCtxSynchronize());
  OK(cuMemFree(p));
}

static void registered(void) {
  CUdeviceptr p;
  char *a = malloc(10000);
  memset(a, 3, 10000);
  OK(cuMemHostRegister(a, 10000, 0));
  WANT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(a + 100, 10, 0));
  OK(cuMemAlloc(&p, 10000));
  OK(cuMemcpyHtoD(p, a, 10000));
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostGetDevicePointer(&p, a, 0));
  OK(cuMemHostUnregister(a));
  WANT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(a));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(NULL, 10, 0));
  OK(cuMemFree(p));
  free(a);
}

/* As many allocations as programs with many small objects have. */
static void many(void) {
  enum { N = 5000 };
  static CUdeviceptr p[N];
  for (int i = 0; i < N; i++)
    OK(cuMemAlloc(&p[i], 256));
  for (int i = 0; i < N; i++)
    OK(cuMemFree(p[i]));
}

static void pointers(CUcontext ctx) {
  CUdeviceptr p, q = 0;
  void *host;
  CUmemorytype type;
  CUcontext of;
  unsigned managed = 9, sync = 1;
  int ordinal = 9;
  size_t size = 0;
  unsigned long long id1, id2;
  OK(cuMemAlloc(&p, 1000));
  OK(cuMemAllocHost(&host, 1000));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
  TRUE(type == CU_MEMORYTYPE_DEVICE);
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
  TRUE(type == CU_MEMORYTYPE_HOST);
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  TRUE(of == ctx);
  OK(cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 999));
  TRUE(q == p);
  OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
  TRUE(size == 1000);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  TRUE(managed == 0);
  OK(cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  OK(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 10));
  TRUE(id1 == id2);
  OK(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  char local;
  WANT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&local));
  WANT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, 99, p));
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *to[] = {&type, &ordinal};
  OK(cuPointerGetAttributes(2, which, to, p));
  TRUE(type == CU_MEMORYTYPE_DEVICE && ordinal == 0);
  OK(cuPointerGetAttributes(2, which, to, (CUdeviceptr)&local));
  TRUE(type == 0 && ordinal == CU_DEVICE_INVALID);
  OK(cuMemFree(p));
  WANT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));

  /* Kernels reach page-locked memory. */
  int can = 0;
  OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
  OK(cuCtxSynchronize());
  if (can) {
    CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
    unsigned v = 66, n = 200;
    /* At its own address, which no call has asked for. */
    void *own[] = {&host, &v, &n};
    OK(cuLaunchKernel(fill, 1, 1, 1, 256, 1, 1, 0, NULL, own, NULL));
    OK(cuCtxSynchronize());
    TRUE(((unsigned *)host)[0] == 66 && ((unsigned *)host)[199] == 66);
    v = 77;
    OK(cuMemHostGetDevicePointer(&q, host, 0));
    void *params[] = {&q, &v, &n};
    OK(cuLaunchKernel(fill, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    TRUE(((unsigned *)host)[0] == 77 && ((unsigned *)host)[199] == 77);
    /* It is freed when kernels are done with it. */
    CUfunction spin = load(PTX_HEAD SPIN_KERNEL, "spin");
    unsigned turns = 200000;
    void *count[] = {&turns};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, count, NULL));
    OK(cuLaunchKernel(fill, 1, 1, 1, 256, 1, 1, 0, NULL, own, NULL));
    OK(cuMemFreeHost(host));
    OK(cuStreamQuery(NULL));
    OK(cuMemAllocHost(&host, 1000));
    TRUE(((unsigned *)host)[0] == 0 && ((unsigned *)host)[199] == 0);
  }
  OK(cuMemFreeHost(host));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

int main(void) {
  CUcontext ctx = begin();
  CUstream s;
  OK(cuStreamCreate(&s, 0));
  sizes();
  copies(NULL);
  copies(s);
  sets(NULL);
  sets(s);
  registered();
  pointers(ctx);
  many();
  OK(cuStreamDestroy(s));
  OK(cuCtxDestroy(ctx));
}
