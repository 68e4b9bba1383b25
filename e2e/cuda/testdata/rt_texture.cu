// Textures and surfaces by objects: linear memory and arrays, integers and floats, filtering.
#include "rt.h"

__global__ void linear(cudaTextureObject_t t, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex1Dfetch<int>(t, i) + 1;
}

__global__ void sample(cudaTextureObject_t t, float *out, int w, int h, float shift)
{
    int x = threadIdx.x, y = blockIdx.x;
    if (x < w && y < h)
        out[y * w + x] = tex2D<float>(t, x + 0.5f + shift, y + 0.5f);
}

__global__ void invert(cudaSurfaceObject_t s, int w, int h)
{
    int x = threadIdx.x, y = blockIdx.x;
    if (x < w && y < h) {
        float v = surf2Dread<float>(s, x * 4, y);
        surf2Dwrite(-v, s, x * 4, y);
    }
}

int main()
{
    const int n = 500, w = 20, h = 10;
    std::vector<int> in(n), out(n);
    for (int i = 0; i < n; i++)
        in[i] = i * 3;
    int *p, *q;
    OK(cudaMalloc(&p, n * sizeof(int)));
    OK(cudaMalloc(&q, n * sizeof(int)));
    OK(cudaMemcpy(p, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = p;
    r.res.linear.desc = cudaCreateChannelDesc<int>();
    r.res.linear.sizeInBytes = n * sizeof(int);
    cudaTextureDesc d = {};
    d.readMode = cudaReadModeElementType;
    cudaTextureObject_t t;
    OK(cudaCreateTextureObject(&t, &r, &d, nullptr));
    linear<<<4, 128>>>(t, q, n);
    OK(cudaMemcpy(out.data(), q, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        TRUE(out[i] == in[i] + 1);
    cudaResourceDesc again;
    cudaTextureDesc texture;
    OK(cudaGetTextureObjectResourceDesc(&again, t));
    TRUE(again.resType == cudaResourceTypeLinear && again.res.linear.devPtr == p && again.res.linear.desc.x == 32);
    OK(cudaGetTextureObjectTextureDesc(&texture, t));
    TRUE(texture.readMode == cudaReadModeElementType);
    OK(cudaDestroyTextureObject(t));

    // An array: points, then between points.
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>(), got;
    cudaArray_t a;
    OK(cudaMallocArray(&a, &f, w, h, cudaArraySurfaceLoadStore));
    cudaExtent e;
    unsigned flags;
    OK(cudaArrayGetInfo(&got, &e, &flags, a));
    TRUE(got.x == 32 && got.f == cudaChannelFormatKindFloat && e.width == w && e.height == h && e.depth == 0);
    std::vector<float> image(w * h), result(w * h);
    for (int i = 0; i < w * h; i++)
        image[i] = (i * 37 % 64) * 0.25f;
    OK(cudaMemcpy2DToArray(a, 0, 0, image.data(), w * sizeof(float), w * sizeof(float), h, cudaMemcpyHostToDevice));
    r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = a;
    d = {};
    d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
    float *o;
    OK(cudaMalloc(&o, w * h * sizeof(float)));
    for (int filter = 0; filter < 2; filter++) {
        d.filterMode = filter ? cudaFilterModeLinear : cudaFilterModePoint;
        OK(cudaCreateTextureObject(&t, &r, &d, nullptr));
        float shift = filter ? 0.5f : 0;
        sample<<<h, 32>>>(t, o, w, h, shift);
        OK(cudaMemcpy(result.data(), o, w * h * sizeof(float), cudaMemcpyDeviceToHost));
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) {
                float left = image[y * w + x], next = image[y * w + (x + 1 < w ? x + 1 : x)];
                TRUE(result[y * w + x] == (filter ? (left + next) / 2 : left));
            }
        OK(cudaDestroyTextureObject(t));
    }

    // A surface writes what a copy then reads.
    cudaSurfaceObject_t s;
    OK(cudaCreateSurfaceObject(&s, &r));
    invert<<<h, 32>>>(s, w, h);
    OK(cudaMemcpy2DFromArray(result.data(), w * sizeof(float), a, 0, 0, w * sizeof(float), h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < w * h; i++)
        TRUE(result[i] == -image[i]);
    OK(cudaDestroySurfaceObject(s));
    OK(cudaFreeArray(a));
    return right();
}
