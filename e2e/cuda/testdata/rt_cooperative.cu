// Cooperative groups: tiles, coalesced threads, and a barrier of the grid.
#include "rt.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void tiles(int *out)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(warp);
    int sum = cg::reduce(warp, (int)block.thread_rank(), cg::plus<int>());
    int most = cg::reduce(eight, (int)block.thread_rank(), cg::greater<int>());
    int scan = cg::inclusive_scan(eight, 1);
    unsigned odd = eight.ballot(block.thread_rank() & 1);
    double wide = eight.shfl(block.thread_rank() + 0.25, 3);
    int few = 0;
    if (block.thread_rank() % 4 == 1) {
        auto c = cg::coalesced_threads();
        few = (int)(c.size() * 100 + c.thread_rank() * 10) + c.shfl((int)threadIdx.x, 0);
    }
    block.sync();
    int *o = out + block.thread_rank() * 6;
    o[0] = sum, o[1] = most, o[2] = scan, o[3] = (int)odd, o[4] = (int)(wide * 4), o[5] = few;
}

__device__ int place(cg::thread_block_tile<32> warp) { return (int)(warp.meta_group_rank() * 10 + warp.meta_group_size()); }

// Parts of groups: tiles of tiles, of any parent, and groups by what their threads say. Half the
// warp comes late, so that its threads have not converged.
__global__ void parts(int *out)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<32> any = warp;
    auto eight = cg::tiled_partition<8>(warp);
    int t = (int)block.thread_rank(), rank = t % 32;
    if (rank < 16)
        __nanosleep(1000);
    auto third = cg::labeled_partition(warp, rank % 3);
    auto half = cg::binary_partition(warp, rank >= 12);
    int all, *o = out + t * 8;
    o[0] = place(any), o[1] = (int)(eight.meta_group_rank() * 10 + eight.meta_group_size());
    o[2] = (int)(third.size() * 100 + third.thread_rank());
    o[3] = (int)(half.size() * 100 + half.thread_rank());
    o[4] = third.shfl(rank, 1);
    third.match_all(rank % 3, all);
    o[5] = all;
    o[6] = o[7] = 0;
    if (rank % 2) {
        auto four = cg::tiled_partition(cg::coalesced_threads(), 4);
        o[6] = (int)(four.size() * 100 + four.thread_rank());
        o[7] = four.shfl(rank, 0);
    }
}

// Each step of all blocks reads what other blocks wrote in the step before.
__global__ void steps(int *a, int *b, int n, int count)
{
    auto grid = cg::this_grid();
    for (int k = 0; k < count; k++) {
        for (int i = (int)grid.thread_rank(); i < n; i += (int)grid.size())
            b[i] = a[(i + 1) % n] + a[(i + n - 1) % n];
        grid.sync();
        for (int i = (int)grid.thread_rank(); i < n; i += (int)grid.size())
            a[i] = b[i] & 0xffff;
        grid.sync();
    }
}

int main()
{
    int *out;
    std::vector<int> got(64 * 6);
    OK(cudaMalloc(&out, got.size() * sizeof(int)));
    tiles<<<1, 64>>>(out);
    OK(cudaMemcpy(got.data(), out, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int t = 0; t < 64; t++) {
        const int *o = &got[t * 6];
        TRUE(o[0] == (t < 32 ? 496 : 1520) && o[1] == t / 8 * 8 + 7 && o[2] == t % 8 + 1 && o[3] == 0xaa);
        TRUE(o[4] == (t / 8 * 8 + 3) * 4 + 1);
        TRUE(o[5] == (t % 4 == 1 ? 800 + t % 32 / 4 * 10 + t / 32 * 32 + 1 : 0));
    }

    got.resize(64 * 8);
    int *more;
    OK(cudaMalloc(&more, got.size() * sizeof(int)));
    parts<<<1, 64>>>(more);
    OK(cudaMemcpy(got.data(), more, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int t = 0; t < 64; t++) {
        const int *o = &got[t * 8], rank = t % 32;
        TRUE(o[0] == t / 32 * 10 + 2 && o[1] == rank / 8 * 10 + 4);
        TRUE(o[2] == (rank % 3 == 2 ? 1000 : 1100) + rank / 3 && o[4] == rank % 3 + 3 && o[5]);
        TRUE(o[3] == (rank < 12 ? 1200 + rank : 2000 + rank - 12));
        TRUE(o[6] == (rank % 2 ? 400 + rank / 2 % 4 : 0) && o[7] == (rank % 2 ? rank / 8 * 8 + 1 : 0));
    }

    int can = 0, blocks = 0;
    OK(cudaDeviceGetAttribute(&can, cudaDevAttrCooperativeLaunch, 0));
    TRUE(can);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, steps, 64, 0));
    TRUE(blocks > 0);
    int n = 1000, count = 5, *a, *b;
    std::vector<int> ha(n), hb(n), result(n);
    for (int i = 0; i < n; i++)
        ha[i] = i * 7 % 101;
    OK(cudaMalloc(&a, n * sizeof(int)));
    OK(cudaMalloc(&b, n * sizeof(int)));
    OK(cudaMemcpy(a, ha.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    void *args[] = {&a, &b, &n, &count};
    OK(cudaLaunchCooperativeKernel(steps, dim3(4), dim3(64), args, 0, 0));
    OK(cudaLaunchCooperativeKernel(steps, dim3(3), dim3(64), args, 0, 0));
    OK(cudaMemcpy(result.data(), a, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int k = 0; k < 2 * count; k++) {
        for (int i = 0; i < n; i++)
            hb[i] = ha[(i + 1) % n] + ha[(i + n - 1) % n];
        for (int i = 0; i < n; i++)
            ha[i] = hb[i] & 0xffff;
    }
    TRUE(ha == result);
    WANT(cudaErrorCooperativeLaunchTooLarge, cudaLaunchCooperativeKernel(steps, dim3(1 << 20), dim3(64), args, 0, 0));
    return right();
}
