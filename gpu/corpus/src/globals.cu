// Variables of the module: constants that the host sets, constants that the
// source does, a table that a launch fills and the next reads, a counter.
__constant__ float coefficients[8];              // set by the host
__constant__ short steps[4] = {1, 3, -2, 7};
__device__ unsigned table[64];
__device__ unsigned long long threads_run = 1000;  // the host reads it back
__device__ const char alphabet[] = "0123456789abcdef";

extern "C" __global__ void globals_fill(unsigned seed) {
    unsigned x = seed + threadIdx.x;
    table[threadIdx.x] = x * x + steps[threadIdx.x % 4];
    atomicAdd(&threads_run, 1ull);
}

// A polynomial whose coefficients sit in constant memory, a letter, and a word of
// the table, chosen by each thread.
extern "C" __global__ void globals_use(const float *x, float *y, unsigned char *letters, unsigned *picked, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], sum = 0.0f;
    for (int k = 7; k >= 0; k--)
        sum = fmaf(sum, v, coefficients[k]);
    y[i] = sum;
    unsigned word = table[unsigned(i * 37) % 64];
    picked[i] = word;
    letters[i] = alphabet[word >> 28];
    atomicAdd(&threads_run, 1ull);
}
