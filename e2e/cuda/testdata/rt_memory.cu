// Memory in its forms: pitched, three-dimensional, of the host, and by pointers' attributes.
#include "rt.h"

__global__ void twice(int *p, size_t pitch, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < w && y < h) {
        int *row = (int *)((char *)p + y * pitch);
        row[x] *= 2;
    }
}

__global__ void through(int *host, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        host[i] += 100;
}

int main()
{
    const int w = 37, h = 11, d = 3;
    std::vector<int> in(w * h * d), out(w * h * d, -1);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (int)i;

    // Two dimensions, from and to rows without gaps.
    int *p;
    size_t pitch;
    OK(cudaMallocPitch(&p, &pitch, w * sizeof(int), h));
    TRUE(pitch >= w * sizeof(int));
    OK(cudaMemcpy2D(p, pitch, in.data(), w * sizeof(int), w * sizeof(int), h, cudaMemcpyHostToDevice));
    twice<<<dim3(2, h), 32>>>(p, pitch, w, h);
    OK(cudaMemcpy2D(out.data(), w * sizeof(int), p, pitch, w * sizeof(int), h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < w * h; i++)
        TRUE(out[i] == 2 * in[i]);
    OK(cudaMemset2D(p, pitch, 1, 8, 2));
    OK(cudaMemcpy2D(out.data(), w * sizeof(int), p, pitch, w * sizeof(int), h, cudaMemcpyDeviceToHost));
    TRUE(out[0] == 0x01010101 && out[1] == 0x01010101 && out[2] == 4 && out[w] == 0x01010101 && out[2 * w] == 4 * w);
    WANT(cudaErrorInvalidPitchValue, cudaMemcpy2D(p, 4, in.data(), 8, 8, 2, cudaMemcpyHostToDevice));

    // Three dimensions, a part of each.
    cudaPitchedPtr box;
    cudaExtent e = make_cudaExtent(w * sizeof(int), h, d);
    OK(cudaMalloc3D(&box, e));
    cudaMemcpy3DParms c = {};
    c.srcPtr = make_cudaPitchedPtr(in.data(), w * sizeof(int), w, h);
    c.dstPtr = box;
    c.extent = e;
    c.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&c));
    std::fill(out.begin(), out.end(), -1);
    cudaMemcpy3DParms back = {};
    back.srcPtr = box;
    back.srcPos = make_cudaPos(4 * sizeof(int), 2, 1);
    back.dstPtr = make_cudaPitchedPtr(out.data(), w * sizeof(int), w, h);
    back.dstPos = make_cudaPos(0, 1, 0);
    back.extent = make_cudaExtent(10 * sizeof(int), 5, 2);
    back.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&back));
    for (int z = 0; z < d; z++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) {
                bool copied = x < 10 && y >= 1 && y < 6 && z < 2;
                TRUE(out[(z * h + y) * w + x] == (copied ? in[((z + 1) * h + y + 1) * w + x + 4] : -1));
            }

    // The host's memory: pinned, seen by kernels, and registered.
    int *host, *mapped;
    OK(cudaHostAlloc(&host, 1000 * sizeof(int), cudaHostAllocMapped));
    for (int i = 0; i < 1000; i++)
        host[i] = i;
    OK(cudaHostGetDevicePointer(&mapped, host, 0));
    through<<<1, 64>>>(mapped, 1000);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 1000; i++)
        TRUE(host[i] == i + 100);
    unsigned flags;
    OK(cudaHostGetFlags(&flags, host));
    TRUE(flags & cudaHostAllocMapped);
    cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, host));
    TRUE(a.type == cudaMemoryTypeHost && a.hostPointer == host && a.device == 0);
    OK(cudaPointerGetAttributes(&a, p));
    TRUE(a.type == cudaMemoryTypeDevice && a.devicePointer == p && a.device == 0);
    int local;
    OK(cudaPointerGetAttributes(&a, &local));
    TRUE(a.type == cudaMemoryTypeUnregistered && a.hostPointer == &local && a.device == cudaInvalidDeviceId);
    std::vector<char> pages(1 << 16);
    OK(cudaHostRegister(pages.data(), pages.size(), cudaHostRegisterDefault));
    OK(cudaHostUnregister(pages.data()));
    WANT(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(pages.data()));
    OK(cudaFreeHost(host));

    // Sizes.
    size_t free_, total;
    OK(cudaMemGetInfo(&free_, &total));
    TRUE(free_ <= total && total > 0);
    int *q = (int *)1;
    OK(cudaMalloc(&q, 0));
    TRUE(q == nullptr);
    WANT(cudaErrorMemoryAllocation, cudaMalloc(&q, (size_t)1 << 60));
    WANT(cudaErrorMemoryAllocation, cudaGetLastError());
    OK(cudaFree(p));
    WANT(cudaErrorInvalidValue, cudaFree(p));
    return right();
}
