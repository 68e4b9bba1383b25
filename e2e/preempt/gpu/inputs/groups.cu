// Cooperative groups, warp-wide operations, locks and queues.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(int *out, const int *in) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int v = cg::reduce(tile, in[block.group_index().x * block.size() + block.thread_rank()], cg::plus<int>());
    block.sync();
    if (tile.thread_rank() == 0)
        atomicAdd(&out[block.group_index().x], v);
}

extern "C" __global__ void whole_grid(int *out) {
    cg::grid_group grid = cg::this_grid();
    out[grid.thread_rank()] = grid.thread_rank();
    grid.sync();
    out[grid.thread_rank()] += out[grid.size() - 1 - grid.thread_rank()];
}

extern "C" __global__ void coalesced(int *out, const int *in) {
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (v & 1) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0)
            atomicAdd(out, int(active.size()));
    }
}

extern "C" __global__ void locked(int *lock, int *sum, int v) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1))
            ;
        __threadfence();
        *sum = *sum * 3 + v;
        __threadfence();
        atomicExch(lock, 0);
    }
}

extern "C" __global__ void queue(int *head, const int *tail, int *items) {
    __shared__ int mine;
    for (;;) {
        if (threadIdx.x == 0)
            mine = atomicAdd(head, 1);
        __syncthreads();
        if (mine >= *tail)
            return;
        items[mine * blockDim.x + threadIdx.x] += mine;
        __syncthreads();
    }
}

extern "C" __global__ void last_block(float *sums, const float *in, unsigned *done, float *out) {
    __shared__ bool last;
    float v = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int offset = 16; offset; offset /= 2)
        v += __shfl_xor_sync(~0u, v, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&sums[blockIdx.x], v);
    __threadfence();
    if (threadIdx.x == 0)
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last)
        for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
            atomicAdd(out, sums[i]);
}
