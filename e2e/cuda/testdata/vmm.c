/* Virtual memory management: addresses reserved, memory made and mapped there. */
#include "check.h"

int main(void) {
  CUcontext ctx = begin();
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, got;
  int offered = 0;
  OK(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  TRUE(offered == 1);
  size_t grain = 0;
  OK(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  TRUE(grain > 0 && (grain & (grain - 1)) == 0);
  size_t n = 4 * grain;
  CUdeviceptr va, other;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&va, grain - 1, 0, 0, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(NULL, n, 0, 0, 0));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&va, (size_t)1 << 60, 0, 0, 0));
  OK(cuMemAddressReserve(&va, n, 8 * grain, 0, 0));
  TRUE(va % (8 * grain) == 0);
  OK(cuMemAddressReserve(&other, n, 0, va + 8 * grain * 2, 0));
  TRUE(other != va);

  CUmemGenericAllocationHandle a, b, same;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&a, 1, &prop, 0));
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&a, (size_t)1 << 50, &prop, 0));
  OK(cuMemCreate(&a, grain, &prop, 0));
  OK(cuMemCreate(&b, 2 * grain, &prop, 0));
  OK(cuMemGetAllocationPropertiesFromHandle(&got, a));
  TRUE(got.type == prop.type && got.location.id == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemMap(12345, grain, 0, a, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemMap(va, grain, 0, 999, 0));
  OK(cuMemMap(va, grain, 0, a, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemMap(va, 2 * grain, 0, b, 0)); /* there is something */
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(other, grain, 0, a, 0));  /* a second place */
  OK(cuMemMap(va + grain, 2 * grain, 0, b, 0));
  CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(va, 3 * grain, &access, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(va, 4 * grain, &access, 1)); /* the last is not mapped */
  unsigned long long flags = 9;
  OK(cuMemGetAccess(&flags, &access.location, va + grain));
  TRUE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  /* One piece of memory to kernels, over both. */
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  unsigned words = 3 * grain / 4, value = 77, *host = malloc(3 * grain);
  void *args[] = {&va, &value, &words};
  OK(cuLaunchKernel(fill, (words + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
  OK(cuMemcpyDtoH(host, va, grain));
  OK(cuMemcpyDtoH(host + grain / 4, va + grain, 2 * grain));
  for (unsigned i = 0; i < words; i++) TRUE(host[i] == 77);

  /* Mapped elsewhere it holds what it held. */
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(va));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(va, n)); /* mapped */
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(va, grain / 2));
  OK(cuMemUnmap(va, grain));
  OK(cuMemMap(other + grain, grain, 0, a, 0));
  memset(host, 0, grain);
  OK(cuMemcpyDtoH(host, other + grain, grain));
  TRUE(host[0] == 77 && host[grain / 4 - 1] == 77);
  OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(other + grain + 100)));
  TRUE(same == a);
  OK(cuMemRelease(same));
  OK(cuMemRelease(a)); /* stays until it is unmapped */
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(a));
  OK(cuMemsetD32(other + grain, 5, 16));
  OK(cuMemUnmap(other + grain, grain));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(other + grain, grain));
  OK(cuMemUnmap(va + grain, 2 * grain));
  OK(cuMemRelease(b));
  OK(cuMemAddressFree(va, n));
  OK(cuMemAddressFree(other, n));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(other, n));
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&a, grain, &prop, 0));

  /* What is left ends with the context. */
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cuMemAddressReserve(&va, n, 0, 0, 0));
  OK(cuMemCreate(&a, grain, &prop, 0));
  OK(cuMemMap(va, grain, 0, a, 0));
  OK(cuCtxDestroy(ctx));
  puts("right");
}
