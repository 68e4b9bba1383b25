// Several threads with streams of their own, host functions, callbacks, and a forked child.
#include "rt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

__global__ void add(int *p, int v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += v;
}

static void work(int id)
{
    const int n = 5000;
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    int *p;
    OK(cudaMalloc(&p, n * sizeof(int)));
    std::vector<int> host(n, id);
    OK(cudaMemcpyAsync(p, host.data(), n * sizeof(int), cudaMemcpyHostToDevice, s));
    for (int k = 1; k <= 20; k++)
        add<<<(n + 127) / 128, 128, 0, s>>>(p, k, n);
    OK(cudaMemcpyAsync(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    for (int v : host)
        TRUE(v == id + 210);
    // An error is its thread's own.
    WANT(cudaErrorInvalidValue, cudaMemcpy(p, nullptr, 4, cudaMemcpyHostToDevice));
    if (id % 2)
        WANT(cudaErrorInvalidValue, cudaGetLastError());
    else
        WANT(cudaErrorInvalidValue, cudaPeekAtLastError());
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
}

struct order {
    std::atomic<int> at{0};
    int host = -1, callback = -1;
};

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(work, i);
    for (auto &t : threads)
        t.join();
    OK(cudaGetLastError());

    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    order o;
    int *p, v = 0;
    OK(cudaMalloc(&p, sizeof(int)));
    OK(cudaMemsetAsync(p, 0, sizeof(int), s));
    add<<<1, 1, 0, s>>>(p, 5, 1);
    OK(cudaLaunchHostFunc(s, [](void *q) { auto *w = (order *)q; w->host = w->at++; }, &o));
    add<<<1, 1, 0, s>>>(p, 6, 1);
    OK(cudaStreamAddCallback(s, [](cudaStream_t, cudaError_t e, void *q) {
        auto *w = (order *)q;
        w->callback = e == cudaSuccess ? w->at++ : -2;
    }, &o, 0));
    OK(cudaMemcpyAsync(&v, p, sizeof(int), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    TRUE(v == 11 && o.host == 0 && o.callback == 1);

    // The per-thread stream waits for nothing of another.
    OK(cudaMemsetAsync(p, 0, sizeof(int), cudaStreamPerThread));
    add<<<1, 1, 0, cudaStreamPerThread>>>(p, 9, 1);
    OK(cudaMemcpyAsync(&v, p, sizeof(int), cudaMemcpyDeviceToHost, cudaStreamPerThread));
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    TRUE(v == 9);

    // A child has no CUDA after a fork: an error, and no hang.
    fflush(nullptr);
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        alarm(30);
        void *q;
        cudaError_t e = cudaMalloc(&q, 16);
        _exit(e == cudaErrorInitializationError ? 0 : 1);
    }
    int status;
    TRUE(waitpid(child, &status, 0) == child);
    TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cudaDeviceSynchronize());
    return right();
}
