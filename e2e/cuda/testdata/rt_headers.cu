// What programs expect of the headers: that the C library's can be included after them, in any form;
// the names by which other headers ask whether they were included; and that arguments with a
// documented default can be left out.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_occupancy.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <device_launch_parameters.h>
#include <math_constants.h>

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <complex>
#include <functional>
#include <memory>
#include <regex>
#include <thread>

#include "rt.h"

#if !defined(__CUDA_RUNTIME_H__) || !defined(__CUDA_RUNTIME_API_H__) || !defined(__DRIVER_TYPES_H__) ||        \
    !defined(__VECTOR_TYPES_H__) || !defined(__VECTOR_FUNCTIONS_H__) || !defined(__cuda_cuda_h__) ||           \
    !defined(__CUDA_FP16_H__) || !defined(__HOST_DEFINES_H__)
#error "a header can't be asked for"
#endif

__device__ __noinline__ int twice(int v) { return 2 * v; }
__host__ __device__ __attribute__((__noinline__)) int thrice(int v) { return 3 * v; }

__constant__ int constant;
__device__ int variable;

__global__ void numbers(int *out)
{
    int *p = (int *)malloc(sizeof *p);
    *p = abs(-constant) + std::max(twice(1), thrice(1)) + (int)floor(fabs(-2.5f));
    out[0] = variable = *p;
    free(p);
}

// Thrust and CUB name what launches kernels on the device, in code that is compiled for the host, and
// write template where no arguments of one follow.
template <class T> struct launcher {
    template <class U> __device__ static U same(U v) { return v; }
    __device__ cudaError_t launch(T v)
    {
#ifndef __CUDA_ARCH__
        void *parameters = cudaGetParameterBuffer(64, sizeof v);
        return parameters ? cudaLaunchDevice((void *)numbers, parameters, dim3(1), dim3(1), 0, 0)
                          : __cudaDeviceSynchronizeDeprecationAvoidance();
#else
        return launcher<T>::template same(v) ? cudaErrorNotSupported : cudaSuccess;
#endif
    }
};

// The libraries reach the bits of numbers by the name that these have in CUDA's headers, and call the
// driver through types of pointers.
template <class T> struct bits_of : T {
    using T::__x;
};
static_assert(sizeof(bits_of<__half>::__x) == 2 && sizeof(bits_of<__nv_bfloat16>::__x) == 2, "");
static_assert(std::is_same<PFN_cuMemAlloc, decltype(&cuMemAlloc)>::value && std::is_same<cuuint64_t, uint64_t>::value, "");
static_assert(std::is_same<PFN_cuMemcpyAsync_v7000_ptsz, decltype(&cuMemcpyAsync_ptsz)>::value, "");

__global__ void launches(int v) { launcher<int>().launch(v); }

int main()
{
    int *p, host = 7;
    cudaArray_t line;
    cudaChannelFormatDesc bytes = cudaCreateChannelDesc<unsigned char>();
    cudaEvent_t event;
    cudaStream_t s;
    cudaMemPool_t pool;
    TRUE(abs(-3) == 3 && thrice(1) == 3 && isfinite(1.0));
    OK(cudaMalloc(&p, 64));
    OK(cudaMemcpyToSymbol(constant, &host, sizeof host));
    OK(cudaMemsetAsync(p, 0, 64));
    OK(cudaMemset2DAsync(p, 8, 1, 4, 8));
    numbers<<<1, 1>>>(p);
    launches<<<1, 1>>>(1);
    OK(cudaEventCreate(&event));
    OK(cudaEventRecord(event));
    OK(cudaStreamCreate(&s));
    OK(cudaStreamWaitEvent(s, event));
    OK(cudaMemcpyAsync(&host, p, sizeof host, cudaMemcpyDefault, s));
    OK(cudaStreamSynchronize(s));
    TRUE(host == 12);
    host = 0;
    OK(cudaMemcpyFromSymbol(&host, variable, sizeof host));
    TRUE(host == 12);
    host = 0;
    OK(cudaMemcpyAsync(&host, p, sizeof host, cudaMemcpyDeviceToHost));
    OK(cudaDeviceSynchronize());
    TRUE(host == 12);

    OK(cudaMallocArray(&line, &bytes, 64));
    OK(cudaFreeArray(line));
    OK(cudaMallocArray(&line, &bytes, 64, 2));
    OK(cudaMemcpy2DToArrayAsync(line, 0, 0, p, 32, 32, 2, cudaMemcpyDeviceToDevice));
    OK(cudaFreeArray(line));
    OK(cudaMalloc3DArray(&line, &bytes, make_cudaExtent(8, 8, 8)));
    OK(cudaFreeArray(line));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    float *f;
    OK(cudaMallocAsync(&f, 64, pool, s));
    OK(cudaFreeAsync(f, s));
    OK(cudaStreamSynchronize(s));

    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    cudaGraphExec_t x;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaStreamGetCaptureInfo(s, &status));
    TRUE(status == cudaStreamCaptureStatusActive);
    OK(cudaMemsetAsync(p, 5, 4, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&x, graph));
    cudaGraphExecUpdateResult updated;
    OK(cudaGraphExecUpdate(x, graph, NULL, &updated));
    TRUE(updated == cudaGraphExecUpdateSuccess);
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(&host, p, sizeof host, cudaMemcpyDeviceToHost));
    TRUE(host == 0x05050505);
    return right();
}
