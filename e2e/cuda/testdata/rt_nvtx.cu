// NVTX's marks, ranges and names: a program that has them compiles, with either place of the headers, and
// is told that nothing follows them.
#include <nvToolsExt.h>
#include <nvToolsExtCuda.h>
#include <nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include "rt.h"

__global__ void set(int *out) { *out = 7; }

int main()
{
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.colorType = NVTX_COLOR_ARGB;
    attributes.color = 0xff00ff00;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    attributes.payload.dValue = 0.5;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "step";
    static_assert(sizeof attributes == 48, "");

    nvtxInitialize(nullptr);
    nvtxNameOsThread(1, "main");
    nvtxDomainHandle_t domain = nvtxDomainCreate("program");
    attributes.message.registered = nvtxDomainRegisterString(domain, "step");
    TRUE(nvtxRangePush("all") == NVTX_NO_PUSH_POP_TRACKING);
    TRUE(nvtxRangePushEx(&attributes) == NVTX_NO_PUSH_POP_TRACKING);
    TRUE(nvtxDomainRangePushEx(domain, &attributes) == NVTX_NO_PUSH_POP_TRACKING);
    nvtxRangeId_t range = nvtxRangeStartA("apart");
    nvtxMark("here");
    nvtxMarkEx(&attributes);

    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    nvtxNameCudaStream(stream, "stream");
    nvtxNameCudaDevice(0, "device");
    nvtxNameCuDevice(0, "device");
    int *out, got = 0;
    OK(cudaMalloc(&out, sizeof got));
    set<<<1, 1, 0, stream>>>(out);
    OK(cudaMemcpyAsync(&got, out, sizeof got, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    TRUE(got == 7);

    nvtxRangeEnd(range);
    TRUE(nvtxDomainRangePop(domain) == NVTX_NO_PUSH_POP_TRACKING);
    TRUE(nvtxRangePop() == NVTX_NO_PUSH_POP_TRACKING && nvtxRangePop() == NVTX_NO_PUSH_POP_TRACKING);
    nvtxDomainDestroy(domain);
    OK(cudaFree(out));
    OK(cudaStreamDestroy(stream));
    return right();
}
