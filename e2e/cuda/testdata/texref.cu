// Texture references, which CUDA 11 had: linear memory, memory with a pitch, arrays; integers as they
// are and as floats; filtering, and coordinates from 0 to 1. It is linked with libcudart.so.11.0.
#include "rt.h"

texture<float> line;
texture<int, cudaTextureType1D, cudaReadModeElementType> whole;
texture<uchar4, cudaTextureType2D, cudaReadModeNormalizedFloat> colours;
texture<float, cudaTextureType2D> plane, smooth;
texture<unsigned char, cudaTextureType3D> solid;

__global__ void fetch(float *o, int n)
{
    int i = threadIdx.x;
    float4 c = tex2D(colours, i % 8 + 0.5f, i / 8 + 0.5f);
    o += i * 8;
    o[0] = tex1Dfetch(line, i), o[1] = (float)tex1Dfetch(whole, i);
    o[2] = c.x, o[3] = c.w;
    o[4] = tex2D(plane, (float)(i % 8), (float)(i / 8));
    o[5] = tex2D(smooth, (i + 0.5f) / n, 0.5f);
    o[6] = tex3D(solid, i % 2 + 0.5f, i / 2 % 2 + 0.5f, i / 4 % 2 + 0.5f);
}

int main()
{
    const int n = 32;
    std::vector<float> numbers(n), got(n * 8);
    std::vector<int> integers(n);
    std::vector<unsigned char> bytes(n * 4);
    for (int i = 0; i < n; i++)
        numbers[i] = i * 0.75f - 3, integers[i] = i * -70001;
    for (int i = 0; i < n * 4; i++)
        bytes[i] = (unsigned char)(i * 5 + 1);
    float *linear, *pitched, *out;
    int *ints;
    size_t pitch, offset;
    OK(cudaMalloc(&linear, n * sizeof(float)));
    OK(cudaMalloc(&ints, n * sizeof(int)));
    OK(cudaMalloc(&out, got.size() * sizeof(float)));
    OK(cudaMallocPitch(&pitched, &pitch, 8 * sizeof(float), 4));
    OK(cudaMemcpy(linear, numbers.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(ints, integers.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(pitched, pitch, numbers.data(), 32, 32, 4, cudaMemcpyHostToDevice));
    OK(cudaBindTexture(&offset, line, linear, n * sizeof(float)));
    TRUE(offset == 0);
    OK(cudaBindTexture(NULL, whole, ints, whole.channelDesc));
    OK(cudaBindTexture2D(&offset, plane, pitched, 8, 4, pitch));
    cudaArray_t colour, grey, box;
    cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(), four = cudaCreateChannelDesc<uchar4>(), one = cudaCreateChannelDesc<unsigned char>();
    OK(cudaMallocArray(&colour, &four, 8, 4));
    OK(cudaMemcpy2DToArray(colour, 0, 0, bytes.data(), 32, 32, 4, cudaMemcpyHostToDevice));
    OK(cudaBindTextureToArray(colours, colour));
    OK(cudaMallocArray(&grey, &floats, 4, 1));
    OK(cudaMemcpy2DToArray(grey, 0, 0, numbers.data(), 16, 16, 1, cudaMemcpyHostToDevice));
    smooth.normalized = 1;
    smooth.filterMode = cudaFilterModeLinear;
    OK(cudaBindTextureToArray(smooth, grey, floats));
    OK(cudaMalloc3DArray(&box, &one, make_cudaExtent(2, 2, 2)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(bytes.data(), 2, 2, 2);
    copy.dstArray = box;
    copy.extent = make_cudaExtent(2, 2, 2);
    copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    OK(cudaBindTextureToArray(solid, box));
    fetch<<<1, n>>>(out, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        const float *o = &got[i * 8];
        TRUE(o[0] == numbers[i]);
        TRUE(o[1] == (float)integers[i]);
        TRUE(o[4] == numbers[i]);
        TRUE(fabsf(o[2] - bytes[i * 4] / 255.0f) < 1e-6f && fabsf(o[3] - bytes[i * 4 + 3] / 255.0f) < 1e-6f);
        float x = fminf(fmaxf((i + 0.5f) / n * 4 - 0.5f, 0), 3), low = floorf(x);
        TRUE(fabsf(o[5] - (numbers[(int)low] + (x - low) * 0.75f)) < 0.01f);
        TRUE(o[6] == bytes[i % 8]);
    }
    OK(cudaGetTextureAlignmentOffset(&offset, line));
    OK(cudaUnbindTexture(line));
    OK(cudaUnbindTexture(line));

    // What was taken back before a launch is not bound by it.
    OK(cudaMalloc(&linear, n * sizeof(float)));
    OK(cudaBindTexture(&offset, line, linear, n * sizeof(float)));
    OK(cudaUnbindTexture(line));
    OK(cudaFree(linear));
    fetch<<<1, n>>>(out, n);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    return right();
}
