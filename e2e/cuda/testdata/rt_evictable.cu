// Kernels of many blocks in two streams, long enough to be evicted. The results are the CPU's.
#include "rt.h"

__host__ __device__ static unsigned step(unsigned v) { return v * 1664525u + 1013904223u; }

// Each number takes turns steps. The blocks' sums are made in shared memory.
__global__ void mix(unsigned *out, unsigned *sums, unsigned turns)
{
    extern __shared__ unsigned part[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = out[i];
    for (unsigned t = 0; t < turns; t++)
        v = step(v);
    out[i] = part[threadIdx.x] = v;
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d /= 2) {
        if (threadIdx.x < d)
            part[threadIdx.x] += part[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] += part[0];
}

int main()
{
    const unsigned blocks = 200, threads = 64, n = blocks * threads, streams = 2, times = 12, turns = 100;
    cudaStream_t s[streams];
    unsigned *out[streams], *sums[streams];
    std::vector<unsigned> want[streams], want_sums[streams];
    for (unsigned k = 0; k < streams; k++) {
        OK(cudaStreamCreate(&s[k]));
        OK(cudaMalloc(&out[k], n * sizeof(unsigned)));
        OK(cudaMalloc(&sums[k], blocks * sizeof(unsigned)));
        OK(cudaMemset(sums[k], 0, blocks * sizeof(unsigned)));
        want[k].resize(n);
        want_sums[k].resize(blocks);
        for (unsigned i = 0; i < n; i++)
            want[k][i] = i ^ k << 20;
        OK(cudaMemcpy(out[k], want[k].data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    }
    for (unsigned r = 0; r < times; r++) {
        for (unsigned k = 0; k < streams; k++) {
            mix<<<blocks, threads, threads * sizeof(unsigned), s[k]>>>(out[k], sums[k], turns);
            OK(cudaGetLastError());
            for (unsigned i = 0; i < n; i++) {
                for (unsigned t = 0; t < turns; t++)
                    want[k][i] = step(want[k][i]);
                want_sums[k][i / threads] += want[k][i];
            }
        }
        OK(cudaDeviceSynchronize()); // a kernel's form is chosen by what its launches so far took
    }
    for (unsigned k = 0; k < streams; k++) {
        std::vector<unsigned> got(n), got_sums(blocks);
        OK(cudaMemcpy(got.data(), out[k], n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(got_sums.data(), sums[k], blocks * sizeof(unsigned), cudaMemcpyDeviceToHost));
        TRUE(got == want[k]);
        TRUE(got_sums == want_sums[k]);
    }
    return right();
}
