// Cooperative groups' tiles of several warps, against the CPU.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "rt.h"

namespace cg = cooperative_groups;

// An operation whose order shows: composition of a*x+b, which is associative and not commutative.
struct affine {
    unsigned a, b, more;
};
struct then {
    __host__ __device__ affine operator()(affine f, affine g) const { return affine{f.a * g.a, f.b * g.a + g.b, f.more + g.more}; }
};

struct results {
    unsigned rank, size, group, groups, sum, inclusive, exclusive, from, any, all, narrow, order;
    affine composed, upto, before;
};

template <unsigned Size, class Group> __device__ void in_tile(const Group &parent, results *r)
{
    auto t = cg::tiled_partition<Size>(parent);
    unsigned me = threadIdx.x + blockDim.x * threadIdx.y, v = me * me % 101 + 1;
    r += blockIdx.x * blockDim.x * blockDim.y + me;
    affine f{2 * v + 1, v, 1};
    r->rank = t.thread_rank();
    r->size = t.size();
    r->group = t.meta_group_rank();
    r->groups = t.meta_group_size();
    r->sum = cg::reduce(t, v, cg::plus<unsigned>());
    r->inclusive = cg::inclusive_scan(t, v);
    r->exclusive = cg::exclusive_scan(t, v);
    r->from = t.shfl(v, Size - 3);
    r->any = t.any(v == 7);
    r->all = t.all(v < 101);
    r->composed = cg::reduce(t, f, then());
    r->upto = cg::inclusive_scan(t, f, then());
    r->before = cg::exclusive_scan(t, f, then());
    // A tile of a tile.
    auto n = cg::tiled_partition<32>(t);
    r->narrow = cg::reduce(n, v, cg::plus<unsigned>()) * 100 + n.meta_group_rank();
    // Tiles go on at their own pace: only this one's threads meet.
    __shared__ unsigned turn[1024];
    turn[me] = 0;
    t.sync();
    for (unsigned i = 0; i < 3 + t.meta_group_rank(); i++) {
        if (t.thread_rank() == (i * 37) % Size)
            turn[me - t.thread_rank()] += i + 1;
        t.sync();
    }
    r->order = turn[me - t.thread_rank()];
}

template <unsigned Size> __global__ void tiles(results *r)
{
    __shared__ cg::block_tile_memory<1024> memory;
    in_tile<Size>(cg::this_thread_block(memory), r);
}

template <unsigned Outer, unsigned Size> __global__ void nested(results *r)
{
    auto outer = cg::tiled_partition<Outer>(cg::this_thread_block());
    if (outer.meta_group_rank() % 2 == 0) // the others don't take part
        in_tile<Size>(outer, r);
}

static unsigned value(unsigned me) { return me * me % 101 + 1; }

static void check(const std::vector<results> &got, unsigned block, unsigned size, unsigned parent, bool half)
{
    for (unsigned i = 0; i < got.size(); i++) {
        unsigned me = i % block, first = me / size * size;
        const results &r = got[i];
        if (half && me / parent % 2)
            continue;
        unsigned sum = 0, upto = 0, any = 0, all = 1, narrow = 0, order = 0;
        affine composed{1, 0, 0}, here{1, 0, 0}, before{0, 0, 0};
        for (unsigned k = first; k < first + size; k++) {
            unsigned v = value(k);
            sum += v;
            any |= v == 7;
            all &= v < 101;
            if (k == me)
                before = k == first ? affine{0, 0, 0} : composed;
            composed = then()(composed, affine{2 * v + 1, v, 1});
            if (k <= me)
                upto = sum, here = composed;
            if (k / 32 == me / 32)
                narrow += v;
        }
        unsigned group = me % parent / size;
        for (unsigned k = 0; k < 3 + group; k++)
            order += k + 1;
        TRUE(r.rank == me - first && r.size == size && r.group == group && r.groups == parent / size);
        TRUE(r.sum == sum && r.inclusive == upto && r.exclusive == upto - value(me));
        TRUE(r.from == value(first + size - 3) && !r.any == !any && !r.all == !all);
        TRUE(r.narrow == narrow * 100 + (me - first) / 32 && r.order == order);
        TRUE(memcmp(&r.composed, &composed, sizeof composed) == 0);
        TRUE(memcmp(&r.upto, &here, sizeof here) == 0);
        TRUE(memcmp(&r.before, &before, sizeof before) == 0);
    }
}

template <class F> static void run(F launch, unsigned blocks, dim3 block, unsigned size, unsigned parent, bool half)
{
    unsigned threads = block.x * block.y;
    std::vector<results> got(blocks * threads);
    results *d;
    OK(cudaMalloc(&d, got.size() * sizeof(results)));
    launch(d);
    OK(cudaGetLastError());
    OK(cudaMemcpy(got.data(), d, got.size() * sizeof(results), cudaMemcpyDeviceToHost));
    check(got, threads, size, parent, half);
    OK(cudaFree(d));
}

int main()
{
    run([](results *d) { tiles<64><<<3, dim3(16, 16)>>>(d); }, 3, dim3(16, 16), 64, 256, false);
    run([](results *d) { tiles<128><<<2, 384>>>(d); }, 2, dim3(384), 128, 384, false);
    run([](results *d) { tiles<512><<<1, 1024>>>(d); }, 1, dim3(1024), 512, 1024, false);
    run([](results *d) { nested<256, 64><<<2, 512>>>(d); }, 2, dim3(512), 64, 256, true);
    return right();
}
