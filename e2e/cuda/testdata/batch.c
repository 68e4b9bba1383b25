/* Batches of copies, in one dimension and three, against what the CPU makes of them. */
#include "check.h"

enum { N = 6, MOST = 1 << 20, BIG = 5 << 20 };

/* The number of the operation that the call says has failed. */
static size_t failed(CUresult want, CUdeviceptr *d, CUdeviceptr *s, size_t *n, CUmemcpyAttributes *a, size_t *first, size_t kinds, CUstream st) {
  size_t at = 77;
  WANT(want, cuMemcpyBatchAsync(d, s, n, N, a, first, kinds, &at, st));
  return at;
}

static void flat(CUstream s) {
  static unsigned char in[BIG], out[BIG], twice[MOST], third[MOST];
  unsigned char *pinned;
  CUdeviceptr p, q;
  OK(cuMemAlloc(&p, BIG));
  OK(cuMemAlloc(&q, BIG));
  OK(cuMemHostAlloc((void **)&pinned, MOST, 0));
  for (int i = 0; i < BIG; i++) in[i] = (unsigned char)(i ^ i >> 8 ^ i >> 16);
  memcpy(pinned, in + 9, MOST);

  /* Up from ordinary and page-locked memory, across, down, and within the program's memory. Where an
   * order of "during the call" holds, the source may change at once. */
  CUmemcpyAttributes a[2] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
                             {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}};
  size_t first[] = {0, 2};
  CUdeviceptr d[N] = {p, q, q + MOST, (CUdeviceptr)out, (CUdeviceptr)twice, (CUdeviceptr)third};
  CUdeviceptr f[N] = {(CUdeviceptr)in, (CUdeviceptr)pinned, p + 5, p, q, (CUdeviceptr)in};
  size_t n[N] = {BIG, MOST, MOST, BIG, MOST, 1000};
  unsigned rounds = 3000000;
  OK(cuLaunchKernel(load(PTX_HEAD SPIN_KERNEL, "spin"), 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&rounds}, NULL));
  TRUE(failed(CUDA_SUCCESS, d, f, n, a, first, 2, s) == SIZE_MAX);
  memset(pinned, 0, MOST);
  OK(cuStreamSynchronize(s));
  TRUE(memcmp(out, in, BIG) == 0);
  TRUE(memcmp(twice, in + 9, MOST) == 0);
  TRUE(memcmp(third, in, 1000) == 0);
  OK(cuMemcpyDtoH(twice, q + MOST, MOST));
  TRUE(memcmp(twice, in + 5, MOST) == 0);

  /* One that fails says which. Those before it were made. */
  OK(cuMemsetD8Async(p, 0, BIG, s)); /* s does not wait for the legacy stream */
  size_t wrong[N] = {BIG, MOST, 1 << 30, 1, 1, 1};
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, wrong, a, first, 2, s) == 2);
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(out, p, BIG));
  TRUE(memcmp(out, in, BIG) == 0);
  size_t none[N] = {BIG, MOST, MOST, BIG, 0, 1};
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, none, a, first, 2, s) == 4);

  /* Errors of no single operation. */
  size_t backward[] = {0, 0}, late[] = {1, 2}, beyond[] = {0, N};
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, a, backward, 2, s) == SIZE_MAX);
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, a, late, 2, s) == SIZE_MAX);
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, a, beyond, 2, s) == SIZE_MAX);
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, a, first, N + 1, s) == SIZE_MAX);
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, NULL, first, 2, s) == SIZE_MAX);
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, a, first, 2, NULL) == SIZE_MAX); /* the legacy stream */
  TRUE(failed(CUDA_ERROR_INVALID_HANDLE, d, f, n, a, first, 2, (CUstream)0x1234567) == SIZE_MAX);
  CUmemcpyAttributes odd = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID};
  TRUE(failed(CUDA_ERROR_INVALID_VALUE, d, f, n, &odd, first, 1, s) == SIZE_MAX);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync(p, q, 1, &odd, s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync(p, q, 1, NULL, s));

  OK(cuMemcpyBatchAsync_v2(d, f, n, N, a, first, 2, s));
  OK(cuMemcpyWithAttributesAsync(q, p, 4096, &a[0], s));
  OK(cuMemcpyWithAttributesAsync((CUdeviceptr)pinned, q, 4096, &a[1], s));
  OK(cuStreamSynchronize(s));
  TRUE(memcmp(pinned, in, 4096) == 0);
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree(p));
  OK(cuMemFree(q));
}

enum { W = 33, H = 7, D = 4, PITCH = 48, ROWS = 9 };

static void boxes(CUstream s) {
  static unsigned char in[D][ROWS][PITCH], out[D][ROWS][PITCH];
  CUdeviceptr p;
  OK(cuMemAlloc(&p, W * H * D));
  unsigned char *bytes = (unsigned char *)in;
  for (int i = 0; i < D * ROWS * PITCH; i++) bytes[i] = (unsigned char)(i * 7 + (i >> 8));
  CUmemcpy3DOperand program = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.rowLength = PITCH, .layerHeight = ROWS}};
  CUmemcpy3DOperand packed = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = p}};
  CUDA_MEMCPY3D_BATCH_OP op[2] = {{.src = program, .dst = packed, .extent = {W, H, D}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
                                  {.src = packed, .dst = program, .extent = {W, H, D}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
  op[0].src.op.ptr.ptr = (CUdeviceptr)in;
  op[1].dst.op.ptr.ptr = (CUdeviceptr)out;
  size_t at = 5;
  OK(cuMemcpy3DBatchAsync(2, op, &at, 0, s));
  TRUE(at == SIZE_MAX);
  OK(cuStreamSynchronize(s));
  for (int z = 0; z < D; z++)
    for (int y = 0; y < ROWS; y++)
      for (int x = 0; x < PITCH; x++) TRUE(out[z][y][x] == (x < W && y < H ? in[z][y][x] : 0));
  memset(out, 0, sizeof out);
  OK(cuMemcpy3DBatchAsync_v2(1, &op[0], 0, s));
  OK(cuMemcpy3DWithAttributesAsync(&op[1], 0, s));
  OK(cuStreamSynchronize(s));
  TRUE(out[D - 1][H - 1][W - 1] == in[D - 1][H - 1][W - 1]);
  op[1].extent.depth = 1000;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(2, op, &at, 0, s));
  TRUE(at == 1);
  op[1].extent.depth = D;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(2, op, &at, 1, s));
  TRUE(at == SIZE_MAX);
  op[1].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy3DBatchAsync(2, op, &at, 0, s));
  TRUE(at == 1);
  OK(cuMemFree(p));
}

int main(void) {
  CUcontext ctx = begin();
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  flat(s);
  boxes(s);
  OK(cuCtxDestroy(ctx));
}
