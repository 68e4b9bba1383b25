// Calls through pointers, tables and vtables; recursion; functions that are not
// inlined, with barriers and indices in them.
struct Shape {
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Disc : Shape {
    float radius;
    __device__ explicit Disc(float r) : radius(r) {}
    __device__ float area() const override { return 3.14159265f * radius * radius; }
};

extern "C" __global__ void areas(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Square square(i);
    Disc disc(i);
    const Shape *shape = i % 2 ? static_cast<const Shape *>(&square) : &disc;
    out[i] = shape->area();
}

__device__ __noinline__ int twice(int v) { return 2 * v + blockIdx.x; }
__device__ __noinline__ int thrice(int v) { return 3 * v + gridDim.x; }
__device__ int (*const table[])(int) = {twice, thrice};

extern "C" __global__ void through_table(int *out, int which) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[(which + i) & 1](i);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n + (blockIdx.y & 1) : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursive(int *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = fibonacci(threadIdx.x % 12);
}

__device__ __noinline__ int sum_of_block(int v) {
    __shared__ int sums[256];
    sums[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    return sums[0];
}

extern "C" __global__ void meets_in_function(int *out, const int *in) {
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (in[blockIdx.x] > 3)
        v = sum_of_block(v);
    v += sum_of_block(v + 1);
    out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
