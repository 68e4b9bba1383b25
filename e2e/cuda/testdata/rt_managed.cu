// Managed memory: the program and kernels share it at one address.
#include "rt.h"

struct node {
    int value;
    node *next;
};

__global__ void twice(int *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] *= 2;
}

__global__ void sum_list(const node *at, int *sum)
{
    for (; at; at = at->next)
        *sum += at->value;
}

__global__ void count(int *p) { atomicAdd(p, 1); }

// A kernel waits for what the program writes while it runs, and answers.
__global__ void answer(volatile int *ask, volatile int *reply)
{
    while (*ask == 0)
        ;
    __threadfence_system();
    *reply = *ask + 1;
}

template <class T> static T *managed(size_t n, unsigned flags = cudaMemAttachGlobal)
{
    T *p;
    OK(cudaMallocManaged(&p, n * sizeof(T), flags));
    return p;
}

static void shared_by_both()
{
    const int n = 100003;
    int *p = managed<int>(n);
    for (int i = 0; i < n; i++) {
        TRUE(p[i] == 0);
        p[i] = i;
    }
    for (int round = 1; round <= 3; round++) {
        twice<<<(n + 255) / 256, 256>>>(p, n);
        OK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++)
            TRUE(p[i] == i << round);
    }
    OK(cudaFree(p));

    // Pointers in it are the same to both.
    node *first = NULL;
    int *sum = managed<int>(1, cudaMemAttachHost), want = 0;
    for (int i = 0; i < 40; i++) {
        node *a = managed<node>(1);
        *a = node{i * i, first};
        first = a;
        want += i * i;
    }
    sum_list<<<1, 1>>>(first, sum);
    OK(cudaDeviceSynchronize());
    TRUE(*sum == want);
    while (first) {
        node *next = first->next;
        OK(cudaFree(first));
        first = next;
    }
    *sum = 5;
    count<<<7, 33>>>(sum);
    OK(cudaDeviceSynchronize());
    TRUE(*sum == 5 + 7 * 33);

    int *ask = managed<int>(2);
    answer<<<1, 1>>>(ask, ask + 1);
    OK(cudaGetLastError());
    *(volatile int *)ask = 41;
    OK(cudaDeviceSynchronize());
    TRUE(ask[1] == 42);
    OK(cudaFree(ask));
    OK(cudaFree(sum));
}

// Copies and sets take it as memory of the device and of the host, in the order of their stream.
static void copies()
{
    const int n = 5000;
    int *a = managed<int>(n), *b = managed<int>(n), *d;
    std::vector<int> h(n);
    OK(cudaMalloc(&d, n * sizeof(int)));
    for (int kind : {cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault}) {
        for (int i = 0; i < n; i++)
            a[i] = i + kind, b[i] = -1;
        for (int k = 0; k < 8; k++)
            twice<<<(n + 127) / 128, 128>>>(a, n);
        OK(cudaMemcpy(b, a, n * sizeof(int), (cudaMemcpyKind)kind));
        OK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++)
            TRUE(b[i] == (i + kind) << 8);
    }
    OK(cudaMemcpy(d, b, n * sizeof(int), cudaMemcpyHostToDevice));
    twice<<<(n + 127) / 128, 128>>>(d, n);
    OK(cudaMemcpy(a, d, n * sizeof(int), cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(h.data(), a, n * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < n; i++)
        TRUE(h[i] == b[i] * 2);
    OK(cudaMemset(a, 0x21, n * sizeof(int)));
    OK(cudaMemset(b, 0, n * sizeof(int)));
    OK(cudaMemset2D(b, 100, 0x43, 50, n * sizeof(int) / 100));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++)
        TRUE(a[i] == 0x21212121);
    for (int i = 0; i < n * 4; i++)
        TRUE(((char *)b)[i] == (i % 100 < 50 ? 0x43 : 0));
    WANT(cudaErrorInvalidValue, cudaMemset(a, 0, 1 << 20));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(d));
}

static int attribute(enum cudaMemRangeAttribute a, const void *p, size_t n)
{
    int v = 99;
    OK(cudaMemRangeGetAttribute(&v, sizeof v, a, p, n));
    return v;
}

static void advice()
{
    const size_t page = 4096, size = 10 * page;
    char *p = managed<char>(size);
    TRUE(attribute(cudaMemRangeAttributeReadMostly, p, size) == 0);
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p, size) == cudaInvalidDeviceId);
    OK(cudaMemAdvise(p, 4 * page, cudaMemAdviseSetReadMostly, 0));
    TRUE(attribute(cudaMemRangeAttributeReadMostly, p + 100, page) == 1);
    TRUE(attribute(cudaMemRangeAttributeReadMostly, p, size) == 0);
    OK(cudaMemAdvise(p, size, cudaMemAdviseUnsetReadMostly, 0));
    TRUE(attribute(cudaMemRangeAttributeReadMostly, p + 100, page) == 0);
    OK(cudaMemAdvise(p, size, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId));
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p, size) == cudaCpuDeviceId);
    OK(cudaMemAdvise(p, page, cudaMemAdviseSetPreferredLocation, 0));
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p, page) == 0);
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p, size) == cudaInvalidDeviceId);
    OK(cudaMemAdvise(p, size, cudaMemAdviseUnsetPreferredLocation, 0));
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p, page) == cudaInvalidDeviceId);
    OK(cudaMemAdvise(p, size, cudaMemAdviseSetAccessedBy, 0));
    int by[3] = {9, 9, 9};
    OK(cudaMemRangeGetAttribute(by, sizeof by, cudaMemRangeAttributeAccessedBy, p, size));
    TRUE(by[0] == 0 && by[1] == cudaInvalidDeviceId && by[2] == cudaInvalidDeviceId);
    OK(cudaMemAdvise(p, size, cudaMemAdviseSetAccessedBy, cudaCpuDeviceId));
    OK(cudaMemAdvise(p, size, cudaMemAdviseUnsetAccessedBy, 0));
    OK(cudaMemRangeGetAttribute(by, sizeof by, cudaMemRangeAttributeAccessedBy, p, size));
    TRUE(by[0] == cudaCpuDeviceId && by[1] == cudaInvalidDeviceId);
    OK(cudaMemPrefetchAsync(p, size, 0, 0));
    OK(cudaMemPrefetchAsync(p + page, page, cudaCpuDeviceId, 0));
    TRUE(attribute(cudaMemRangeAttributeLastPrefetchLocation, p, page) == 0);
    cudaMemLocation device = {};
    device.type = cudaMemLocationTypeDevice;
    OK(cudaMemPrefetchAsync(p + 3 * page, page, device, 0));
    OK(cudaMemAdvise(p + 3 * page, page, cudaMemAdviseSetPreferredLocation, device));
    TRUE(attribute(cudaMemRangeAttributePreferredLocation, p + 3 * page, page) == 0);
    int mostly = 9, last = 9;
    void *to[] = {&mostly, &last};
    size_t sizes[] = {4, 4};
    enum cudaMemRangeAttribute ask[] = {cudaMemRangeAttributeReadMostly, cudaMemRangeAttributeLastPrefetchLocation};
    OK(cudaMemRangeGetAttributes(to, sizes, ask, 2, p + page, page));
    TRUE(mostly == 0 && last == cudaCpuDeviceId);

    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamAttachMemAsync(s, p, 0, cudaMemAttachSingle));
    WANT(cudaErrorInvalidValue, cudaStreamAttachMemAsync(s, p + 1, 0, cudaMemAttachSingle));
    OK(cudaStreamDestroy(s));

    // What is no managed memory, no place and no advice.
    void *d;
    OK(cudaMalloc(&d, size));
    WANT(cudaErrorInvalidValue, cudaMemAdvise(d, size, cudaMemAdviseSetReadMostly, 0));
    WANT(cudaErrorInvalidValue, cudaMemPrefetchAsync(&d, 8, 0, 0));
    WANT(cudaErrorInvalidValue, cudaMemPrefetchAsync(p, size + page, 0, 0));
    WANT(cudaErrorInvalidDevice, cudaMemPrefetchAsync(p, size, 1, 0));
    WANT(cudaErrorInvalidDevice, cudaMemAdvise(p, size, cudaMemAdviseSetAccessedBy, 7));
    WANT(cudaErrorInvalidValue, cudaMemAdvise(p, size, (enum cudaMemoryAdvise)77, 0));
    WANT(cudaErrorInvalidValue, cudaMemRangeGetAttribute(by, 2, cudaMemRangeAttributeReadMostly, p, size));
    OK(cudaFree(d));
    OK(cudaFree(p));
    cudaGetLastError();
}

static void properties()
{
    int v;
    OK(cudaDeviceGetAttribute(&v, cudaDevAttrManagedMemory, 0));
    TRUE(v == 1);
    OK(cudaDeviceGetAttribute(&v, cudaDevAttrConcurrentManagedAccess, 0));
    TRUE(v == 1);
    char *p = managed<char>(100);
    cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, p + 5));
    TRUE(a.type == cudaMemoryTypeManaged && a.devicePointer == p + 5 && a.hostPointer == p + 5);
    WANT(cudaErrorInvalidValue, cudaFreeHost(p));
    WANT(cudaErrorInvalidValue, cudaFree(p + 5));
    OK(cudaFree(p));
    WANT(cudaErrorInvalidValue, cudaFree(p));
    OK(cudaPointerGetAttributes(&a, p));
    TRUE(a.type == cudaMemoryTypeUnregistered);
    WANT(cudaErrorInvalidValue, cudaMallocManaged(&p, 100, 9));
    WANT(cudaErrorInvalidValue, cudaMallocManaged(&p, 0));
    WANT(cudaErrorMemoryAllocation, cudaMallocManaged(&p, (size_t)1 << 40));
    // Memory that was freed is there again, and cleared.
    for (int i = 0; i < 20; i++) {
        char *big = managed<char>(24 << 20);
        TRUE(big[0] == 0 && big[(24 << 20) - 1] == 0);
        memset(big, 1, 24 << 20);
        OK(cudaFree(big));
    }
    cudaGetLastError();
}

int main()
{
    shared_by_both();
    copies();
    advice();
    properties();
    return right();
}
