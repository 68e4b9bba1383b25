// Printing from the GPU: integers, text, floating point, several widths.
#include <cstdio>

extern "C" __global__ void say(const int *values, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = values[i];
    if (v % 3 == 0)
        printf("thread %d of block %u: %d is divisible by three\n", threadIdx.x, blockIdx.x, v);
    else
        printf("value %d: hex %08x, scaled %.3f, %s, wide %lld, %c%%\n", i, v, double(float(v) * scale),
               v & 1 ? "odd" : "even", (long long)v * 1000000007ll, 'a' + v % 26);
}
