// Launches, copies, streams, events, symbols and errors.
#include "rt.h"

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

__device__ int counter = 5;
__constant__ float table[4] = {1, 2, 3, 4};

__global__ void scale(float *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] *= table[i & 3];
    if (i == 0)
        atomicAdd(&counter, n);
}

__global__ void shared_sum(const int *in, int *out)
{
    extern __shared__ int s[];
    s[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if ((int)threadIdx.x < d)
            s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}

template <class T> __global__ void fill(T *p, T v, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = v;
}

int main()
{
    int devices = 0, version = 0;
    OK(cudaGetDeviceCount(&devices));
    TRUE(devices == 1);
    OK(cudaRuntimeGetVersion(&version));
    TRUE(version / 1000 == 12);
    OK(cudaDriverGetVersion(&version));
    TRUE(version >= 11000);
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    TRUE(p.warpSize == 32 && p.major >= 8 && p.multiProcessorCount > 0 && p.name[0] && p.maxThreadsPerBlock == 1024);
    TRUE(p.totalGlobalMem > 0 && p.managedMemory == 1);

    const int n = 10000;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++)
        a[i] = i * 0.5f, b[i] = 1000 - i;
    float *da, *db, *dc;
    OK(cudaMalloc(&da, n * sizeof(float)));
    OK(cudaMalloc(&db, n * sizeof(float)));
    OK(cudaMalloc(&dc, n * sizeof(float)));
    OK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        TRUE(c[i] == a[i] + b[i]);

    // A stream, events and symbols.
    cudaStream_t s;
    cudaEvent_t start, end;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    const float doubled[4] = {2, 4, 6, 8};
    OK(cudaMemcpyToSymbolAsync(table, doubled, sizeof doubled, 0, cudaMemcpyHostToDevice, s));
    OK(cudaEventRecord(start, s));
    scale<<<(n + 255) / 256, 256, 0, s>>>(dc, n);
    OK(cudaEventRecord(end, s));
    OK(cudaMemcpyAsync(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    for (int i = 0; i < n; i++)
        TRUE(c[i] == (a[i] + b[i]) * doubled[i & 3]);
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, start, end));
    TRUE(ms >= 0);
    OK(cudaEventQuery(end));
    int value = 0;
    size_t size = 0;
    OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    TRUE(value == 5 + n);
    OK(cudaGetSymbolSize(&size, table));
    TRUE(size == sizeof table);
    void *address = nullptr;
    OK(cudaGetSymbolAddress(&address, counter));
    value = 7;
    OK(cudaMemcpy(address, &value, sizeof value, cudaMemcpyDefault));
    value = 0;
    OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    TRUE(value == 7);

    // Dynamic shared memory, a template, and waiting between streams.
    std::vector<int> in(1024), out(4);
    int *din, *dout;
    OK(cudaMalloc(&din, 4096));
    OK(cudaMalloc(&dout, 16));
    cudaStream_t other;
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    fill<int><<<4, 128, 0, s>>>(din, 3, 1024);
    OK(cudaEventRecord(start, s));
    OK(cudaStreamWaitEvent(other, start, 0));
    shared_sum<<<4, 256, 256 * sizeof(int), other>>>(din, dout);
    OK(cudaMemcpyAsync(out.data(), dout, 16, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
    for (int v : out)
        TRUE(v == 768);

    // Attributes and occupancy.
    cudaFuncAttributes fa;
    OK(cudaFuncGetAttributes(&fa, shared_sum));
    TRUE(fa.maxThreadsPerBlock > 0 && fa.sharedSizeBytes == 0);
    int blocks = 0, grid = 0, block = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_sum, 256, 1024));
    TRUE(blocks > 0);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, shared_sum, 0, 0));
    TRUE(grid > 0 && block > 0 && block % 32 == 0);

    // Errors: the last one is kept until it is read.
    WANT(cudaErrorInvalidValue, cudaMemcpy(dc, nullptr, 4, cudaMemcpyHostToDevice));
    WANT(cudaErrorInvalidValue, cudaPeekAtLastError());
    WANT(cudaErrorInvalidValue, cudaGetLastError());
    OK(cudaGetLastError());
    add<<<1, 2000>>>(da, db, dc, n);
    WANT(cudaErrorInvalidConfiguration, cudaGetLastError());
    add<<<0, 32>>>(da, db, dc, n);
    WANT(cudaErrorInvalidConfiguration, cudaGetLastError());
    WANT(cudaErrorInvalidDevice, cudaSetDevice(9));
    WANT(cudaErrorInvalidDeviceFunction, cudaLaunchKernel((const void *)&devices, dim3(1), dim3(1), nullptr, 0, 0));
    WANT(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, devices));
    WANT(cudaErrorInvalidValue, cudaMemcpyToSymbol(table, doubled, sizeof doubled, 8));
    TRUE(strcmp(cudaGetErrorName(cudaErrorNotSupported), "cudaErrorNotSupported") == 0);
    TRUE(strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument") == 0);
    (void)cudaGetLastError();

    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(other));
    OK(cudaFree(da));
    OK(cudaFree(nullptr));
    OK(cudaDeviceSynchronize());

    // After a reset all is new.
    OK(cudaDeviceReset());
    value = 0;
    OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    TRUE(value == 5);
    return right();
}
