/* What a program asks about the device, before it has a context. */
#include "check.h"

int main(void) {
  int n = 0, major = 0, minor = 0, v = 0;
  CUdevice d = 7;
  size_t bytes = 0;
  char name[256] = "", id[32] = "";
  CUuuid a, b;
  WANT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
  OK(cuDriverGetVersion(&v));
  TRUE(v == 13000);
  WANT(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  OK(cuInit(0));
  OK(cuInit(0));
  OK(cuDeviceGetCount(&n));
  TRUE(n == 1);
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(NULL));
  OK(cuDeviceGet(&d, 0));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, 1));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, -1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
  OK(cuDeviceGetName(name, sizeof name, d));
  TRUE(strlen(name) > 3);
  char start[4];
  OK(cuDeviceGetName(start, sizeof start, d));
  TRUE(strlen(start) == 3 && strncmp(start, name, 3) == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, 0, d));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof name, 3));
  OK(cuDeviceTotalMem(&bytes, d));
  TRUE(bytes >= 64 << 20);
  OK(cuDeviceComputeCapability(&major, &minor, d));
  OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d));
  TRUE(v == major && major >= 7);
  OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d));
  TRUE(v == minor);
  static const struct { CUdevice_attribute a; int least, most; } ranges[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64, 64},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32, 32},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1, 1000},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10, 48 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 48 << 10, 256 << 10},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10, 64 << 10},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, 1},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1, 1},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1, 1},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512, 512},
      {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 65536, 1 << 20},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20, 1 << 30},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1, 8},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536, 65536},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0, 0},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    OK(cuDeviceGetAttribute(&v, ranges[i].a, d));
    if (v < ranges[i].least || v > ranges[i].most) fprintf(stderr, "attribute %d is %d\n", ranges[i].a, v), exit(1);
  }
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; i++) OK(cuDeviceGetAttribute(&v, i, d));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&v, 0, d));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&v, 5000, d));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(NULL, 1, d));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&v, 1, 1));
  OK(cuDeviceGetUuid(&a, d));
  OK(cuDeviceGetUuid_v2(&b, d));
  TRUE(memcmp(&a, &b, sizeof a) == 0);
  static const CUuuid none;
  TRUE(memcmp(&a, &none, sizeof a) != 0);
  OK(cuDeviceGetPCIBusId(id, sizeof id, d));
  int domain, bus, slot, function, attribute;
  TRUE(sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
  OK(cuDeviceGetAttribute(&attribute, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d));
  TRUE(attribute == slot);
  CUdevice other = 9;
  OK(cuDeviceGetByPCIBusId(&other, id));
  TRUE(other == d);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&other, "ffff:77:1f.7"));
  CUdevprop p;
  OK(cuDeviceGetProperties(&p, d));
  TRUE(p.maxThreadsPerBlock == 1024 && p.SIMDWidth == 32 && p.maxThreadsDim[2] == 64);
  size_t width = 0;
  OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, d));
  TRUE(width > 1 << 20);
  OK(cuDeviceGetExecAffinitySupport(&v, CU_EXEC_AFFINITY_TYPE_SM_COUNT, d));
  TRUE(v == 0);
  OK(cuDeviceCanAccessPeer(&v, d, d));
  TRUE(v == 0);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute(&v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, d, d));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuFlushGPUDirectRDMAWrites(0, 0));
  /* Refused by design. */
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuDeviceGetLuid(name, &(unsigned){0}, d));
}
