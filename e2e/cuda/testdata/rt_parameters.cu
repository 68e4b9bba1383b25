// Kernels with many parameters: more than 4 KB, as CUDA 12.1 has them, up to nearly the most.
#include "rt.h"

template <int N> struct words {
    unsigned w[N];
};

template <int N> __global__ void sum(const words<N> a, unsigned *out)
{
    unsigned s = 0;
    for (int i = threadIdx.x; i < N; i += blockDim.x)
        s += a.w[i] * (i + 1);
    atomicAdd(out + blockIdx.x, s);
}

template <int N> static void check(void)
{
    static words<N> a;
    unsigned want = 0, got[8], *out;
    for (int i = 0; i < N; i++) {
        a.w[i] = i * 2654435761u + 12345;
        want += a.w[i] * (i + 1);
    }
    OK(cudaMalloc(&out, sizeof(got)));
    OK(cudaMemset(out, 0, sizeof(got)));
    sum<N><<<8, 64>>>(a, out);
    OK(cudaGetLastError());
    memset(&a, 0, sizeof(a)); // they were copied
    OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
    for (unsigned s : got)
        TRUE(s == want);
    OK(cudaFree(out));
}

int main(void)
{
    check<1>();
    check<1024>(); // 4 KB and a pointer
    check<1086>(); // 4,352 bytes
    check<2048>();
    check<8188>(); // and a pointer
    return right();
}
