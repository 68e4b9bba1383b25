// Sum of n floats, one partial sum a block, in an order that depends on nothing
// but the launch: each thread adds up its stride, then the block adds up its
// threads in a tree. Launched twice, the second time with one block over the
// first's partial sums. blockDim.x is a power of two; dynamic shared memory holds
// one float a thread.
extern "C" __global__ void reduce(const float *in, float *out, int n) {
    extern __shared__ float sums[];

    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sums[threadIdx.x] = sum;
    __syncthreads();

    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = sums[0];
}
