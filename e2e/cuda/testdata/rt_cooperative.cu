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
