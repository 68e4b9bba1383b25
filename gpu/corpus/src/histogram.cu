// Histogram of bytes: each block counts in shared memory with atomics, then adds
// its counts to the whole. Bytes are read four at a time.
constexpr int BINS = 256;

extern "C" __global__ void histogram(const unsigned *words, unsigned *bins, int n) {
    __shared__ unsigned local[BINS];
    local[threadIdx.x] = 0;  // BINS threads a block
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned word = words[i];
        for (int k = 0; k < 4; k++)
            atomicAdd(&local[word >> 8 * k & 0xff], 1);
    }
    __syncthreads();
    if (local[threadIdx.x] > 0)
        atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
