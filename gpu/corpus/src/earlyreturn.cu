// Returns above barriers. In early_return the threads beyond the end leave and
// the rest of their block goes on to meet at barriers; the hardware counts those
// that left as arrived. In early_block whole blocks leave, which is harmless
// everywhere.

// Each element becomes the sum of itself and its right neighbour within the
// block's tile, three times over.
extern "C" __global__ void early_return(const unsigned *in, unsigned *out, int n) {
    __shared__ unsigned tile[129];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : 0;
    if (threadIdx.x == 0)
        tile[blockDim.x] = 0;
    __syncthreads();
    if (i >= n)
        return;
    for (int round = 0; round < 3; round++) {
        unsigned sum = tile[threadIdx.x] + tile[threadIdx.x + 1];
        __syncthreads();
        tile[threadIdx.x] = sum;
        __syncthreads();
    }
    out[i] = tile[threadIdx.x];
}

// Reverses each block's elements where flags has a one for the block.
extern "C" __global__ void early_block(const unsigned *flags, unsigned *data) {
    __shared__ unsigned tile[128];
    if (flags[blockIdx.x] == 0)
        return;
    unsigned *block = data + blockIdx.x * blockDim.x;
    tile[threadIdx.x] = block[threadIdx.x];
    __syncthreads();
    block[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
