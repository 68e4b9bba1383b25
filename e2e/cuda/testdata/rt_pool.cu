// Memory in the order of streams.
#include "rt.h"

__global__ void fill(int *p, int v, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        p[i] = v;
}

int main()
{
    const int n = 10000;
    cudaStream_t s;
    std::vector<int> out(n);
    OK(cudaStreamCreate(&s));
    for (int k = 0; k < 50; k++) {
        int *p;
        OK(cudaMallocAsync(&p, n * sizeof(int), s));
        fill<<<8, 128, 0, s>>>(p, k, n);
        OK(cudaMemcpyAsync(out.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost, s));
        OK(cudaFreeAsync(p, s));
        OK(cudaStreamSynchronize(s));
        TRUE(out[0] == k && out[n - 1] == k);
    }
    cudaMemPool_t pool, own;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long keep = 1 << 20, got = 0;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    TRUE(got == keep);
    OK(cudaMemPoolTrimTo(pool, 0));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    OK(cudaMemPoolCreate(&own, &props));
    int *p;
    OK(cudaMallocFromPoolAsync(&p, n * sizeof(int), own, s));
    fill<<<8, 128, 0, s>>>(p, 3, n);
    OK(cudaStreamSynchronize(s));
    OK(cudaFreeAsync(p, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemPoolDestroy(own));
    return right();
}
