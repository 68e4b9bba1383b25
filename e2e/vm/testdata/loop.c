/* Computes again and again, until something fails: then it prints which error that was and ends
 * with exit status 3. */
#include "check.h"

static void failed(CUresult r) {
  printf("failed: %s\n", error_name(r));
  exit(3);
}

#define TRY(call) \
  do { \
    CUresult r_ = (call); \
    if (r_ != CUDA_SUCCESS) failed(r_); \
  } while (0)

int main(void) {
  enum { N = 4096 };
  static float a[N], b[N], c[N];
  setvbuf(stdout, NULL, _IONBF, 0);
  CUcontext ctx = begin();
  CUfunction add = load(PTX_HEAD ADD_KERNEL, "add");
  CUstream stream;
  TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned round = 0;; round++) {
    CUdeviceptr da, db, dc;
    for (int i = 0; i < N; i++) a[i] = i, b[i] = round % 100;
    TRY(cuMemAlloc(&da, sizeof a));
    TRY(cuMemAlloc(&db, sizeof b));
    TRY(cuMemAlloc(&dc, sizeof c));
    TRY(cuMemcpyHtoD(da, a, sizeof a));
    TRY(cuMemcpyHtoD(db, b, sizeof b));
    unsigned n = N;
    void *params[] = {&dc, &da, &db, &n};
    TRY(cuLaunchKernel(add, N / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemcpyDtoH(c, dc, sizeof c));
    for (int i = 0; i < N; i++) TRUE(c[i] == i + (float)(round % 100));
    TRY(cuMemFree(da));
    TRY(cuMemFree(db));
    TRY(cuMemFree(dc));
    if (round == 0) puts("computes");
  }
  (void)ctx;
}
