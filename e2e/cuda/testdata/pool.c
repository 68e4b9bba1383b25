/* Memory pools: allocations in the order of streams. */
#define CUDA_VERSION 13000
#include "check.h"

#include <stdatomic.h>
#include <unistd.h>

enum { N = 1 << 20 };

/* Keeps its stream from going on. */
static atomic_int release;
static void CUDA_CB held(void *unused) {
  (void)unused;
  while (!release) usleep(1000);
}

static unsigned long long amount(CUmemoryPool p, CUmemPool_attribute a) {
  cuuint64_t v = 99;
  OK(cuMemPoolGetAttribute(p, a, &v));
  return v;
}

int main(void) {
  CUcontext ctx = begin();
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  CUstream s, t;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  int offered = 0;
  OK(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  TRUE(offered == 1);
  CUmemoryPool standard, current, own;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  TRUE(standard == current);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDefaultMemPool(&own, 7));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetDefaultMemPool(NULL, 0));
  CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, nowhere = {.type = CU_MEM_LOCATION_TYPE_HOST};
  OK(cuMemGetDefaultMemPool(&current, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  TRUE(current == standard);
  OK(cuMemGetMemPool(&current, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  TRUE(current == standard);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemGetMemPool(&current, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));

  /* In one stream, what was freed serves at once; its earlier use comes first. */
  CUdeviceptr a, b, c, d;
  unsigned value = 5, n = N, *host = malloc(N * sizeof *host);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&a, 0, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NULL, 8, s));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, 1ull << 45, s));
  OK(cuMemAllocAsync(&a, N * 4, s));
  void *args[] = {&a, &value, &n};
  OK(cuLaunchKernel(fill, N / 256, 1, 1, 256, 1, 1, 0, s, args, NULL));
  OK(cuMemcpyDtoHAsync(host, a, N * 4, s));
  OK(cuMemFreeAsync(a, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(12345, s));
  OK(cuMemAllocAsync(&b, N * 4 - 100, s));
  TRUE(b == a);
  OK(cuMemsetD32Async(b, 6, N - 25, s));
  OK(cuStreamSynchronize(s));
  TRUE(host[0] == 5 && host[N - 1] == 5);
  CUdeviceptr base;
  size_t bytes;
  OK(cuMemGetAddressRange(&base, &bytes, b + 100));
  TRUE(base == b && bytes >= N * 4 - 100);

  /* Another stream has to wait until the first has come that far. */
  OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){1ull << 40}));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 1ull << 40);
  OK(cuLaunchHostFunc(s, held, NULL));
  OK(cuMemFreeAsync(b, s));
  OK(cuMemAllocAsync(&c, N * 4, t));
  TRUE(c != b);
  release = 1;
  OK(cuStreamSynchronize(s));
  OK(cuMemAllocAsync(&d, N * 4, t));
  TRUE(d == b);
  TRUE(amount(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2ull * N * 4);
  TRUE(amount(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 2ull * N * 4);
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 2ull * N * 4);
  OK(cuMemFreeAsync(c, t));
  OK(cuMemFree(d)); /* as CUDA allows */
  OK(cuStreamSynchronize(t));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 1ull * N * 4);
  OK(cuMemPoolTrimTo(standard, 0));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &(cuuint64_t){0}));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &(cuuint64_t){0}));
  int reuse = 9;
  OK(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  TRUE(reuse == 1);

  /* Without a threshold a synchronization gives back what nobody uses. */
  OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(cuuint64_t){0}));
  OK(cuMemAllocAsync(&a, 4, s));
  OK(cuMemFreeAsync(a, s));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 512);
  OK(cuCtxSynchronize());
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);

  /* A pool of the program's. */
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device, .maxSize = 4096};
  OK(cuMemPoolCreate(&own, &props));
  OK(cuMemAllocFromPoolAsync(&a, 4096, own, s));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 1, own, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&b, 1, NULL, s));
  OK(cuDeviceSetMemPool(0, own));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&b, 1, s));
  OK(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, standard));
  OK(cuMemAllocAsync(&b, 1, s));
  CUmemAccess_flags flags;
  OK(cuMemPoolGetAccess(&flags, own, &device));
  TRUE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemAccessDesc access = {.location = device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemPoolSetAccess(own, &access, 1));
  access.location.id = 3;
  WANT(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(own, &access, 1));
  OK(cuDeviceSetMemPool(0, own));
  OK(cuMemPoolDestroy(own));
  OK(cuDeviceGetMemPool(&current, 0));
  TRUE(current == standard);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(own, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(standard));
  OK(cuMemsetD32Async(a, 1, 1024, s)); /* it is still there */
  OK(cuMemFreeAsync(a, s));
  OK(cuMemFreeAsync(b, s));
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&own, &props));
  OK(cuMemAllocAsync(&a, 100, s));
  OK(cuCtxDestroy(ctx));
  TRUE(amount(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  puts("right");
}
