/* Pitched copies of two and three dimensions, between all places. */
#include "check.h"

enum { W = 37, H = 11, D = 5, PITCH = 64, ROWS = 13 };

static unsigned char box[D][ROWS][PITCH], back[D][ROWS][PITCH];

static void fill(void) {
  for (int z = 0; z < D; z++)
    for (int y = 0; y < ROWS; y++)
      for (int x = 0; x < PITCH; x++) box[z][y][x] = (unsigned char)(z * 91 + y * 7 + x);
}

int main(void) {
  CUcontext ctx = begin();
  CUdeviceptr p, q;
  size_t pitch;
  CUstream s;
  fill();
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuMemAllocPitch(&p, &pitch, W, H * D, 4));
  OK(cuMemAlloc(&q, D * ROWS * PITCH));
  CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = box, .srcPitch = PITCH, .srcHeight = ROWS, .srcXInBytes = 3, .srcY = 1,
                     .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p, .dstPitch = pitch, .dstHeight = H,
                     .WidthInBytes = W, .Height = H, .Depth = D};
  OK(cuMemcpy3D(&c));
  CUDA_MEMCPY3D across = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = pitch, .srcHeight = H,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = q, .dstPitch = PITCH, .dstHeight = ROWS, .dstXInBytes = 3, .dstY = 1,
                          .WidthInBytes = W, .Height = H, .Depth = D};
  OK(cuMemcpy3DAsync(&across, NULL));
  CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = q, .srcPitch = PITCH, .srcHeight = ROWS, .srcXInBytes = 3, .srcY = 1,
                       .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)back, .dstPitch = PITCH, .dstHeight = ROWS, .dstXInBytes = 3, .dstY = 1,
                       .WidthInBytes = W, .Height = H, .Depth = D};
  OK(cuMemcpy3D(&out));
  for (int z = 0; z < D; z++)
    for (int y = 0; y < ROWS; y++)
      for (int x = 0; x < PITCH; x++) {
        int in = x >= 3 && x < 3 + W && y >= 1 && y < 1 + H;
        TRUE(back[z][y][x] == (in ? box[z][y][x] : 0));
      }

  CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = box, .srcPitch = PITCH, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p, .dstPitch = pitch,
                        .WidthInBytes = W, .Height = H};
  OK(cuMemcpy2DAsync(&flat, s));
  OK(cuStreamSynchronize(s));
  memset(back, 0, sizeof back);
  CUDA_MEMCPY2D home = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = PITCH,
                        .WidthInBytes = W, .Height = H};
  OK(cuMemcpy2D(&home));
  for (int y = 0; y < H; y++) TRUE(memcmp(back[0][y], box[0][y], W) == 0);
  TRUE(back[0][0][W] == 0);
  OK(cuMemcpy2DUnaligned(&home));
  CUDA_MEMCPY2D host = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = box, .srcPitch = PITCH, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = PITCH,
                        .WidthInBytes = 8, .Height = 2};
  OK(cuMemcpy2D(&host));

  /* Large ones go in several parts. */
  enum { BW = 3000, BH = 2000 };
  unsigned char *big = malloc((size_t)BW * BH), *again = calloc(BW, BH);
  for (size_t i = 0; i < (size_t)BW * BH; i++) big[i] = (unsigned char)(i ^ i >> 8);
  CUdeviceptr wide;
  OK(cuMemAllocPitch(&wide, &pitch, BW, BH, 4));
  CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = big, .srcPitch = BW, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = wide, .dstPitch = pitch, .WidthInBytes = BW, .Height = BH};
  CUDA_MEMCPY2D fro = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = wide, .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = again, .dstPitch = BW, .WidthInBytes = BW, .Height = BH};
  OK(cuMemcpy2D(&in));
  OK(cuMemcpy2D(&fro));
  TRUE(memcmp(big, again, (size_t)BW * BH) == 0);

  CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = W, .srcHeight = 1, .srcContext = ctx,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = q, .dstPitch = W, .dstHeight = 1, .dstContext = ctx, .WidthInBytes = W, .Height = 1, .Depth = 1};
  OK(cuMemcpy3DPeer(&peer));
  OK(cuMemcpy3DPeerAsync(&peer, s));

  home.dstPitch = 8;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&home));
  home.dstPitch = PITCH;
  home.Height = 1 << 20;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&home));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(NULL));
  home.Height = 0;
  OK(cuMemcpy2D(&home));

  /* From one context to another. */
  CUcontext other;
  CUdeviceptr there;
  char text[32] = "from one to the other", read[32] = "";
  OK(cuCtxCreate(&other, 0, 0));
  OK(cuMemAlloc(&there, 32));
  OK(cuCtxPopCurrent(NULL));
  OK(cuMemcpyHtoD(p, text, 32));
  OK(cuMemcpyPeer(there, other, p, ctx, 32));
  OK(cuMemcpyPeerAsync(q, ctx, there, other, 32, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(read, q, 32));
  TRUE(strcmp(text, read) == 0);
  OK(cuCtxDestroy(other));
  OK(cuCtxDestroy(ctx));
}
