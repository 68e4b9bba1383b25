// Votes and shuffles without a mask, which programs before CUDA 9 have, in whole warps and where half of
// the lanes have left: against those with the mask of the lanes that are there.
#include "rt.h"

template <class T> __device__ static bool shuffled(unsigned mask, T v)
{
    int lane = threadIdx.x % warpSize;
    return __shfl(v, lane ^ 5) == __shfl_sync(mask, v, lane ^ 5) && __shfl(v, 3, 8) == __shfl_sync(mask, v, 3, 8) &&
        __shfl_up(v, 2u) == __shfl_up_sync(mask, v, 2u) && __shfl_down(v, 1u) == __shfl_down_sync(mask, v, 1u) &&
        __shfl_down(v, 1u, 4) == __shfl_down_sync(mask, v, 1u, 4) && __shfl_xor(v, 4) == __shfl_xor_sync(mask, v, 4);
}

__device__ static bool same(unsigned mask)
{
    int i = (int)threadIdx.x * 3 + 1;
    return __any(i == 40) == __any_sync(mask, i == 40) && __all(i < 90) == __all_sync(mask, i < 90) &&
        __ballot(i & 1) == __ballot_sync(mask, i & 1) && shuffled(mask, -i) && shuffled(mask, (unsigned)i) &&
        shuffled(mask, -3l * i) && shuffled(mask, 7ul * i) && shuffled(mask, -5ll << i % 40) &&
        shuffled(mask, 5ull << i % 50) && shuffled(mask, i / 8.0f) && shuffled(mask, i / 3.0);
}

__global__ void whole(int *out) { out[threadIdx.x] = same(~0u); }

// The lanes that stay are those that shuffled's exchanges ask.
__global__ void half(int *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x % 32 < 16)
        out[threadIdx.x] = same(0xffffu);
}

// The sum of a warp, as such programs write it.
__global__ void sums(int *out)
{
    int v = threadIdx.x;
    for (int n = warpSize / 2; n > 0; n /= 2)
        v += __shfl_down(v, n);
    out[threadIdx.x] = __shfl(v, 0);
}

int main()
{
    int *out, got[64];
    OK(cudaMalloc(&out, sizeof got));
    void (*kernels[])(int *) = {whole, half, sums};
    for (auto k : kernels) {
        k<<<1, 64>>>(out);
        OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 64; i++)
            TRUE(got[i] == (k == sums ? i / 32 * 1024 + 496 : 1));
    }
    OK(cudaFree(out));
    return right();
}
