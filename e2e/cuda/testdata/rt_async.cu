// Asynchronous copies and barriers: cuda_pipeline.h, cuda/pipeline, cuda/barrier and cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

#include "rt.h"

namespace cg = cooperative_groups;

constexpr int threads = 128, rounds = 9;

// Each thread's own copies of 4, 8 and 16 bytes, two stages ahead.
template <class T> __global__ void own_copies(const T *in, T *out)
{
    __shared__ T stage[3][threads];
    unsigned me = threadIdx.x;
    for (int i = 0; i < 2; i++) {
        __pipeline_memcpy_async(&stage[i][me], &in[i * threads + me], sizeof(T));
        __pipeline_commit();
    }
    for (int i = 0; i < rounds; i++) {
        if (i + 2 < rounds)
            __pipeline_memcpy_async(&stage[(i + 2) % 3][me], &in[(i + 2) * threads + me], sizeof(T));
        __pipeline_commit();
        __pipeline_wait_prior(2);
        __syncthreads();
        out[i * threads + me] = stage[i % 3][threads - 1 - me];
        __syncthreads();
    }
}

// A thread's pipeline, with copies of whatever size and alignment.
__global__ void odd_copies(const char *in, char *out, int bytes)
{
    __shared__ char stage[2][threads * 24];
    cuda::pipeline<cuda::thread_scope_thread> p = cuda::make_pipeline();
    unsigned me = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        p.producer_acquire();
        cuda::memcpy_async(&stage[i % 2][me * bytes], in + (i * threads + me) * bytes, bytes, p);
        p.producer_commit();
        if (i % 2)
            cuda::pipeline_consumer_wait_prior<0>(p);
        else
            p.consumer_wait();
        for (int k = 0; k < bytes; k++)
            out[(i * threads + me) * bytes + k] = stage[i % 2][me * bytes + k];
        p.consumer_release();
    }
}

// A pipeline of the block: all threads copy and read, or the first warp copies and the others read.
template <bool Roles> __global__ void block_pipeline(const int *in, int *out)
{
    constexpr int stages = 3, words = 200;
    __shared__ int stage[stages][words];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    cg::thread_block block = cg::this_thread_block();
    bool produces = !Roles || threadIdx.x < 32, consumes = !Roles || threadIdx.x >= 32;
    auto p = [&] {
        if constexpr (Roles)
            return cuda::make_pipeline(block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
        else
            return cuda::make_pipeline(block, &state);
    }();
    unsigned first = Roles ? threadIdx.x - 32 : threadIdx.x, readers = Roles ? blockDim.x - 32 : blockDim.x;
    int sent = 0;
    for (int i = 0; i < rounds; i++) {
        for (; produces && sent < rounds && (Roles || sent < i + stages); sent++) {
            p.producer_acquire();
            if constexpr (Roles)
                for (unsigned k = threadIdx.x; k < words; k += 32)
                    cuda::memcpy_async(&stage[sent % stages][k], &in[sent * words + k], cuda::aligned_size_t<4>(4), p);
            else
                cuda::memcpy_async(block, stage[sent % stages], in + sent * words, words * sizeof(int), p);
            p.producer_commit();
        }
        if (consumes) {
            p.consumer_wait();
            for (unsigned k = first; k < words; k += readers)
                out[i * words + k] = stage[i % stages][words - 1 - k];
            p.consumer_release();
        }
    }
}

// Threads arrive, do something else and wait; one arrives for several; one leaves.
__global__ void barriers(int *out)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    __shared__ int parts[threads], left;
    unsigned me = threadIdx.x;
    if (me == 0) {
        init(&b, blockDim.x);
        left = 0;
    }
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        parts[me] = me * (i + 1);
        auto token = b.arrive();
        atomicAdd(&left, 1);
        b.wait(std::move(token));
        int sum = 0;
        for (int k = 0; k < threads; k++)
            sum += parts[k];
        out[i * threads + me] = sum;
        b.arrive_and_wait();
    }
    if (me % 4 == 3) {
        b.arrive_and_drop();
        return;
    }
    b.arrive_and_wait();
    parts[me] = 7;
    if (me % 4 == 0)
        b.wait(b.arrive(2)); // for the next one, too
    else if (me % 4 == 2)
        b.arrive_and_wait();
    else
        while (!b.try_wait_parity((2 * rounds + 1) & 1))
            ;
    int sum = 0;
    for (int k = 0; k < threads; k++)
        sum += k % 4 == 3 ? 0 : parts[k];
    out[rounds * threads + me] = sum + left;
}

// Copies that a barrier's phase waits for, and a group's.
__global__ void group_copies(const int *in, int *out, int n)
{
    extern __shared__ __attribute__((aligned(16))) int data[];
    __shared__ cuda::barrier<cuda::thread_scope_block> b;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    if (block.thread_rank() == 0)
        init(&b, block.size());
    block.sync();
    cuda::memcpy_async(block, data, in, n * sizeof(int), b);
    b.arrive_and_wait();
    for (int i = block.thread_rank(); i < n; i += block.size())
        out[i] = data[n - 1 - i];
    block.sync();
    cg::memcpy_async(block, data, in + 1, (n - 1) * sizeof(int)); // not aligned alike
    cg::memcpy_async(block, data + n - 1, n + 100, in, 1);
    cg::wait(block);
    for (int i = block.thread_rank(); i < n; i += block.size())
        out[n + i] = data[i];
    block.sync();
    int *own = data + tile.meta_group_rank() * 64;
    cg::memcpy_async(tile, own, in + 4 * tile.meta_group_rank(), cuda::aligned_size_t<16>(32 * sizeof(int)));
    cg::memcpy_async(tile, own + 32, in, 32 * sizeof(int));
    cg::wait_prior<1>(tile);
    int v = own[31 - tile.thread_rank()];
    cg::wait(tile);
    out[2 * n + block.thread_rank()] = v * 1000 + own[63 - tile.thread_rank()];
}

template <class T> struct both {
    std::vector<T> h;
    T *d;
    explicit both(size_t n) : h(n)
    {
        for (size_t i = 0; i < n * sizeof(T); i++)
            ((char *)h.data())[i] = (char)(i * 7 + i / 251);
        OK(cudaMalloc(&d, n * sizeof(T)));
        OK(cudaMemcpy(d, h.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    void back() { OK(cudaMemcpy(h.data(), d, h.size() * sizeof(T), cudaMemcpyDeviceToHost)); }
};

template <class T> static void test_own()
{
    both<T> in(rounds * threads), out(rounds * threads);
    own_copies<<<1, threads>>>(in.d, out.d);
    out.back();
    for (int i = 0; i < rounds * threads; i++) {
        int from = i / threads * threads + threads - 1 - i % threads;
        TRUE(memcmp(&out.h[i], &in.h[from], sizeof(T)) == 0);
    }
}

int main()
{
    test_own<int>();
    test_own<int2>();
    test_own<int4>();
    test_own<double>();
    for (int bytes : {1, 3, 4, 12, 16, 24}) {
        both<char> in(rounds * threads * 24), out(rounds * threads * 24);
        odd_copies<<<1, threads>>>(in.d, out.d, bytes);
        out.back();
        TRUE(memcmp(in.h.data(), out.h.data(), rounds * threads * bytes) == 0);
    }
    for (int roles = 0; roles < 2; roles++) {
        both<int> in(rounds * 200), out(rounds * 200);
        if (roles)
            block_pipeline<true><<<1, 160>>>(in.d, out.d);
        else
            block_pipeline<false><<<1, 96>>>(in.d, out.d);
        out.back();
        for (int i = 0; i < rounds * 200; i++)
            TRUE(out.h[i] == in.h[i / 200 * 200 + 199 - i % 200]);
    }
    {
        both<int> out((rounds + 1) * threads);
        barriers<<<1, threads>>>(out.d);
        out.back();
        for (int i = 0; i < rounds * threads; i++)
            TRUE(out.h[i] == threads * (threads - 1) / 2 * (i / threads + 1));
        for (int i = 0; i < threads; i++)
            TRUE(i % 4 == 3 || out.h[rounds * threads + i] == threads / 4 * 3 * 7 + rounds * threads);
    }
    for (int n : {256, 1021}) {
        both<int> in(n + 64), out(2 * n + threads);
        for (int i = 0; i < n + 64; i++)
            in.h[i] = i * 3 % 1000;
        OK(cudaMemcpy(in.d, in.h.data(), in.h.size() * sizeof(int), cudaMemcpyHostToDevice));
        group_copies<<<1, threads, (n + 400) * sizeof(int)>>>(in.d, out.d, n);
        out.back();
        for (int i = 0; i < n; i++)
            TRUE(out.h[i] == in.h[n - 1 - i] && out.h[n + i] == in.h[(i + 1) % n]);
        for (int i = 0; i < threads; i++)
            TRUE(out.h[2 * n + i] == in.h[4 * (i / 32) + 31 - i % 32] * 1000 + in.h[31 - i % 32]);
    }
    return right();
}
