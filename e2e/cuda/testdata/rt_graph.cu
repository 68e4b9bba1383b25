// Graphs: built node by node, captured from streams, updated, and launched again.
#include "rt.h"

__global__ void add(int *p, int v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += v;
}

int main()
{
    const int n = 1000;
    int *p;
    std::vector<int> out(n);
    OK(cudaMalloc(&p, n * sizeof(int)));
    cudaStream_t s, other;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreate(&other));

    // Node by node: set, add, copy.
    cudaGraph_t g;
    cudaGraphNode_t set, kernel, copy;
    OK(cudaGraphCreate(&g, 0));
    cudaMemsetParams m = {};
    m.dst = p;
    m.elementSize = 4;
    m.value = 5;
    m.width = n;
    m.height = 1;
    OK(cudaGraphAddMemsetNode(&set, g, nullptr, 0, &m));
    int v = 7, count = n;
    int *arg = p;
    void *args[] = {&arg, &v, &count};
    cudaKernelNodeParams k = {};
    k.func = (void *)add;
    k.gridDim = dim3((n + 127) / 128);
    k.blockDim = dim3(128);
    k.kernelParams = args;
    OK(cudaGraphAddKernelNode(&kernel, g, &set, 1, &k));
    OK(cudaGraphAddMemcpyNode1D(&copy, g, &kernel, 1, out.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
    size_t nodes = 0;
    OK(cudaGraphGetNodes(g, nullptr, &nodes));
    TRUE(nodes == 3);
    cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(kernel, &type));
    TRUE(type == cudaGraphNodeTypeKernel);
    cudaKernelNodeParams back = {};
    OK(cudaGraphKernelNodeGetParams(kernel, &back));
    TRUE(back.func == (void *)add && back.blockDim.x == 128);
    cudaGraphExec_t x;
    OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < 3; i++) {
        OK(cudaGraphLaunch(x, s));
        OK(cudaStreamSynchronize(s));
        for (int q : out)
            TRUE(q == 12);
    }
    v = 20;
    OK(cudaGraphExecKernelNodeSetParams(x, kernel, &k));
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamSynchronize(s));
    TRUE(out[n - 1] == 25);
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphDestroy(g));

    // Captured, with a branch on another stream.
    cudaEvent_t fork, join;
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    int *q;
    OK(cudaMalloc(&q, n * sizeof(int)));
    OK(cudaMemset(p, 0, n * sizeof(int)));
    OK(cudaMemset(q, 0, n * sizeof(int)));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(s, &status));
    TRUE(status == cudaStreamCaptureStatusActive);
    add<<<8, 128, 0, s>>>(p, 1, n);
    OK(cudaEventRecord(fork, s));
    OK(cudaStreamWaitEvent(other, fork, 0));
    add<<<8, 128, 0, other>>>(q, 10, n);
    OK(cudaEventRecord(join, other));
    add<<<8, 128, 0, s>>>(p, 2, n);
    OK(cudaStreamWaitEvent(s, join, 0));
    OK(cudaMemcpyAsync(out.data(), q, n * sizeof(int), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 1; i <= 4; i++) {
        OK(cudaGraphLaunch(x, s));
        OK(cudaStreamSynchronize(s));
        TRUE(out[0] == 10 * i && out[n - 1] == 10 * i);
    }
    OK(cudaMemcpy(out.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
    TRUE(out[0] == 12 && out[n - 1] == 12);
    OK(cudaGraphExecDestroy(x));
    OK(cudaGraphDestroy(g));
    return right();
}
