/* A program as a compiler of that major version makes it, which registers its own fat binary. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"

#define TRUE(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                              \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

extern void *launched, *launched_on;
extern int launch_result;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);

static const struct {
  unsigned magic;
  unsigned short version, header;
  unsigned long long size;
} container = {0xba55ed50, 1, 16, 0};
static const struct {
  unsigned magic, version;
  const void *data, *list;
} wrapper = {0x466243b1, 1, &container, NULL};

static char kernel, lost, variable[64], unknown;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void bench(void) {
  enum { n = 5000000 };
  dim3 one = {1, 1, 1};
  void *args[1];
  cudaLaunchKernel(&kernel, one, one, args, 0, 0);
  double best = 1e9;
  for (int k = 0; k < 5; k++) {
    double start = now();
    for (int i = 0; i < n; i++) cuLaunchKernel(launched, 1, 1, 1, 1, 1, 1, 0, 0, args, NULL);
    double middle = now();
    for (int i = 0; i < n; i++) {
      dim3 g, b;
      size_t shared;
      void *s;
      __cudaPushCallConfiguration(one, one, 0, 0);
      __cudaPopCallConfiguration(&g, &b, &shared, &s);
      cudaLaunchKernel(&kernel, g, b, args, shared, s);
    }
    double more = (now() - middle - (middle - start)) / n;
    if (more < best) best = more;
  }
  printf("%.1f ns\n", best);
}

/* What follows the structure is not the runtime's. */
struct guarded {
  struct cudaDeviceProp p;
  unsigned char after[64];
};

static void check_properties(cudaError_t (*get)(struct cudaDeviceProp *, int), size_t size) {
  struct guarded g;
  memset(&g, 0xa5, sizeof g);
  TRUE(get(&g.p, 1) == cudaSuccess);
  TRUE(strcmp(g.p.name, "recorder") == 0 && g.p.totalGlobalMem == 2000000000 && g.p.uuid.bytes[15] == 0x41);
  TRUE(g.p.warpSize == 101 && g.p.multiProcessorCount == 161 && g.p.major == 751 && g.p.minor == 761);
  TRUE(g.p.maxThreadsDim[2] == 41 && g.p.regsPerMultiprocessor == 821 && g.p.reservedSharedMemPerBlock == 1111);
  for (unsigned char *q = (unsigned char *)&g + size; q < g.after + sizeof g.after; q++) TRUE(*q == 0xa5);
  TRUE(get(&g.p, 2) == cudaErrorInvalidDevice);
  TRUE(cudaGetLastError() == cudaErrorInvalidDevice);
}

int main(int argc, char **argv) {
  void **image = __cudaRegisterFatBinary((void *)&wrapper);
  __cudaRegisterFunction(image, &kernel, &kernel, "_Z6kernelv", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFunction(image, &lost, &lost, "missing", -1, 0, 0, 0, 0, 0);
  __cudaRegisterVar(image, variable, variable, "variable", 0, 64, 0, 0);
  __cudaRegisterFatBinaryEnd(image);
  if (argc > 1 && strcmp(argv[1], "bench") == 0) {
    bench();
    return 0;
  }
  TRUE(!recorded("cuModuleLoadData"));

  int version;
  TRUE(cudaRuntimeGetVersion(&version) == cudaSuccess && version / 1000 == CUDART_VERSION / 1000);

  /* Structures that grew, and shrank. */
  check_properties(cudaGetDeviceProperties, sizeof(struct cudaDeviceProp));
#if CUDART_VERSION >= 12000 && CUDART_VERSION < 13000
  /* Programs of 11 have the shorter structure. */
#undef cudaGetDeviceProperties
  extern cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *, int);
  check_properties(cudaGetDeviceProperties, offsetof(struct cudaDeviceProp, hostRegisterSupported));
#endif
  struct {
    struct cudaFuncAttributes a;
    unsigned char after[64];
  } f;
  memset(&f, 0xa5, sizeof f);
  TRUE(cudaFuncGetAttributes(&f.a, &kernel) == cudaSuccess && f.after[0] == 0xa5 && f.after[63] == 0xa5);
  struct {
    struct cudaPointerAttributes a;
    unsigned char after[64];
  } q;
  memset(&q, 0xa5, sizeof q);
  TRUE(cudaPointerGetAttributes(&q.a, &version) == cudaSuccess && q.a.type == cudaMemoryTypeUnregistered);
  TRUE(q.a.device == cudaInvalidDeviceId && q.a.hostPointer == &version && q.after[0] == 0xa5);

  /* Functions whose parameters changed. */
  cudaGraphExec_t x = NULL;
  cudaGraph_t g = NULL;
#if CUDART_VERSION < 12000
  char log[8] = "log";
  TRUE(cudaGraphInstantiate(&x, g, NULL, log, sizeof log) == cudaSuccess && log[0] == 0);
#else
  TRUE(cudaGraphInstantiate(&x, g, 0) == cudaSuccess);
#endif
  TRUE(recorded("cuGraphInstantiateWithFlags") == 1);
  cudaGraphNode_t from[1], to[1];
  size_t edges = 0;
  enum cudaStreamCaptureStatus status;
  unsigned long long id;
#if CUDART_VERSION >= 13000
  TRUE(cudaGraphGetEdges(g, from, to, NULL, &edges) == cudaSuccess && recorded("cuGraphGetEdges_v2") == 1);
  TRUE(cudaStreamGetCaptureInfo(0, &status, &id, NULL, NULL, NULL, NULL) == cudaSuccess);
  TRUE(recorded("cuStreamGetCaptureInfo_v3") == 1);
#else
  TRUE(cudaGraphGetEdges(g, from, to, &edges) == cudaSuccess && recorded("cuGraphGetEdges") == 1);
#if CUDART_VERSION >= 12000
  TRUE(cudaStreamGetCaptureInfo(0, &status, &id, NULL, NULL, NULL) == cudaSuccess);
#else
  TRUE(cudaStreamGetCaptureInfo(0, &status, &id) == cudaSuccess);
#endif
  TRUE(recorded("cuStreamGetCaptureInfo_v2") == 1);
#endif

  /* Images are loaded when they are needed, once for each context. */
  TRUE(recorded("cuModuleLoadData") == 1);
  dim3 one = {1, 1, 1};
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaSuccess && launched == (void *)(1010 + 10ul));
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaSuccess && !recorded("cuModuleLoadData"));
  TRUE(cudaSetDevice(1) == cudaSuccess);
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaSuccess && launched == (void *)(1020 + 10ul));
  TRUE(recorded("cuModuleLoadData") == 1);
  TRUE(cudaSetDevice(0) == cudaSuccess);
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaSuccess && launched == (void *)(1010 + 10ul));
  TRUE(cudaDeviceReset() == cudaSuccess);
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaSuccess && launched == (void *)(1030 + 10ul));

  /* Names that aren't there. */
  TRUE(cudaLaunchKernel(&lost, one, one, NULL, 0, 0) == cudaErrorInvalidDeviceFunction);
  TRUE(cudaLaunchKernel(&unknown, one, one, NULL, 0, 0) == cudaErrorInvalidDeviceFunction);
  TRUE(cudaGetLastError() == cudaErrorInvalidDeviceFunction && cudaGetLastError() == cudaSuccess);
  void *p;
  size_t size;
  TRUE(cudaGetSymbolAddress(&p, variable) == cudaSuccess && p == (void *)0x7000);
  TRUE(cudaGetSymbolSize(&size, variable) == cudaSuccess && size == 64);
  TRUE(cudaMemcpyToSymbol(variable, &p, 60, 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  TRUE(cudaGetSymbolSize(&size, &kernel) == cudaErrorInvalidSymbol);
  cudaGetLastError();

  /* Launches' configurations nest. */
  for (unsigned i = 1; i <= 20; i++) TRUE(__cudaPushCallConfiguration((dim3){i, 1, 1}, one, i, (void *)(size_t)i) == 0);
  for (unsigned i = 20; i >= 1; i--) {
    dim3 a, b;
    size_t shared;
    void *s;
    TRUE(__cudaPopCallConfiguration(&a, &b, &shared, &s) == cudaSuccess && a.x == i && shared == i && s == (void *)(size_t)i);
  }
  dim3 a, b;
  void *s;
  TRUE(__cudaPopCallConfiguration(&a, &b, &size, &s) == cudaErrorMissingConfiguration);
  cudaGetLastError();

  /* Streams of threads: the other names. */
  extern cudaError_t cudaLaunchKernel_ptsz(const void *, dim3, dim3, void **, size_t, cudaStream_t);
  TRUE(cudaLaunchKernel_ptsz(&kernel, one, one, NULL, 0, 0) == cudaSuccess && launched_on == (void *)2);
  TRUE(cudaLaunchKernel_ptsz(&kernel, one, one, NULL, 0, (cudaStream_t)77) == cudaSuccess && launched_on == (void *)77);

  /* Errors: some go when they are read, some stay. */
  TRUE(cudaEventQuery((cudaEvent_t)600) == cudaErrorNotReady && cudaGetLastError() == cudaErrorNotReady);
  TRUE(cudaGetLastError() == cudaSuccess);
  launch_result = cudaErrorIllegalAddress;
  TRUE(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  launch_result = 0;
  TRUE(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
  TRUE(cudaDeviceReset() == cudaSuccess && cudaGetLastError() == cudaSuccess);
  TRUE(strcmp(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered") == 0);
  TRUE(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code") == 0);

  __cudaUnregisterFatBinary(image);
  TRUE(cudaLaunchKernel(&kernel, one, one, NULL, 0, 0) == cudaErrorInvalidDeviceFunction);
  puts("right");
  return 0;
}
