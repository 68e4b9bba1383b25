// Device functions that stay functions: called directly, through a table of
// pointers, and by themselves.

// Collatz: how many steps from x to 1, and the greatest number on the way.
struct Path {
    int steps;
    unsigned greatest;
};

__device__ __noinline__ Path collatz(unsigned x) {
    Path path = {0, x};
    while (x != 1) {
        x = x % 2 == 0 ? x / 2 : 3 * x + 1;
        path.greatest = max(path.greatest, x);
        path.steps++;
    }
    return path;
}

extern "C" __global__ void call_direct(const unsigned *in, int *steps, unsigned *greatest, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Path path = collatz(in[i]);
    steps[i] = path.steps;
    greatest[i] = path.greatest;
}

typedef unsigned (*Operation)(unsigned, unsigned);

__device__ __noinline__ unsigned op_add(unsigned a, unsigned b) { return a + b; }
__device__ __noinline__ unsigned op_multiply(unsigned a, unsigned b) { return a * b; }
__device__ __noinline__ unsigned op_xor(unsigned a, unsigned b) { return a ^ b; }
__device__ __noinline__ unsigned op_rotate(unsigned a, unsigned b) { return __funnelshift_l(a, a, b); }

__device__ Operation operations[4] = {op_add, op_multiply, op_xor, op_rotate};

// Each thread picks its own operation, so the lanes of a warp call different
// functions.
extern "C" __global__ void call_indirect(const unsigned *which, const unsigned *a, const unsigned *b, unsigned *out,
                                         int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = operations[which[i] & 3](a[i], b[i]);
}

// Ackermann's function, whose recursion no loop replaces.
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void call_recursive(const int *m, const int *k, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = ackermann(m[i], k[i]);
}
