// A kernel whose length is set by its caller: every thread steps a linear
// congruential generator the given number of times. The loop is not unrolled, so
// each iteration costs the same few instructions, and its result is stored, so
// none can be dropped.
extern "C" __global__ void throttle(unsigned *out, unsigned iterations, unsigned start) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = start ^ i;
#pragma unroll 1
    for (unsigned k = 0; k < iterations; k++)
        x = 1664525u * x + 1013904223u;
    out[i] = x;
}
