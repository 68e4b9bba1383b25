// Tensor cores, asynchronous copies and textures.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace wm = nvcuda::wmma;

extern "C" __global__ void product(const half *a, const half *b, float *c, int n) {
    wm::fragment<wm::matrix_a, 16, 16, 16, half, wm::row_major> fa;
    wm::fragment<wm::matrix_b, 16, 16, 16, half, wm::col_major> fb;
    wm::fragment<wm::accumulator, 16, 16, 16, float> fc;
    wm::fill_fragment(fc, 0.0f);
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (int k = 0; k < n; k += 16) {
        wm::load_matrix_sync(fa, a + row * n + k, n);
        wm::load_matrix_sync(fb, b + column * n + k, n);
        wm::mma_sync(fc, fa, fb, fc);
    }
    wm::store_matrix_sync(c + row * n + column, fc, n, wm::mem_row_major);
}

extern "C" __global__ void staged(float *out, const float *in, int rounds) {
    __shared__ float tile[2][256];
    unsigned t = threadIdx.x, at = blockIdx.x * 256 * rounds + t;
    __pipeline_memcpy_async(&tile[0][t], &in[at], 4);
    __pipeline_commit();
    float sum = 0;
    for (int i = 0; i < rounds; i++) {
        if (i + 1 < rounds)
            __pipeline_memcpy_async(&tile[(i + 1) & 1][t], &in[at + 256 * (i + 1)], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += tile[i & 1][255 - t];
        __syncthreads();
    }
    out[blockIdx.x * 256 + t] = sum;
}

extern "C" __global__ void sampled(float *out, cudaTextureObject_t image, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width)
        out[y * width + x] = tex2D<float>(image, x + 0.5f, y + 0.25f);
}
