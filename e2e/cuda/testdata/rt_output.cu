// What kernels print, and assertions. With an argument the kernel's assertion fails.
#include "rt.h"

#include <cassert>

__global__ void say(int n)
{
    if (threadIdx.x == 0)
        printf("block %d of %d: %s %.2f %c %lld\n", blockIdx.x, n, "text", 1.5, 'x', 1ll << 40);
}

__global__ void check(int limit) { assert((int)threadIdx.x < limit); }

int main(int argc, char **)
{
    say<<<2, 32>>>(2);
    OK(cudaDeviceSynchronize());
    check<<<1, 32>>>(32);
    OK(cudaDeviceSynchronize());
    if (argc > 1) {
        check<<<1, 32>>>(31);
        WANT(cudaErrorAssert, cudaDeviceSynchronize());
        // All that follows fails with the same error, and reading it does not clear it.
        int *p;
        WANT(cudaErrorAssert, cudaMalloc(&p, 4));
        WANT(cudaErrorAssert, cudaGetLastError());
        WANT(cudaErrorAssert, cudaGetLastError());
        OK(cudaDeviceReset());
        OK(cudaGetLastError());
        OK(cudaMalloc(&p, 4));
    }
    return right();
}
