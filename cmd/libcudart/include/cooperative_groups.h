#ifndef VGPU_COOPERATIVE_GROUPS_H
#define VGPU_COOPERATIVE_GROUPS_H
#define _COOPERATIVE_GROUPS_H_

/* Cooperative groups in their common forms (CUDA C++ Programming Guide, Cooperative Groups): blocks,
 * tiles, coalesced threads and grids, with synchronization, shuffles, votes, and reduce. */

#include "cuda_runtime.h"

#if defined(__CUDA__) && defined(__cplusplus)

#define VGPU_CG __device__ __inline__ __attribute__((always_inline))

namespace cooperative_groups {

namespace details {

VGPU_CG unsigned lane()
{
    unsigned l;
    __asm__("mov.u32 %0, %%laneid;" : "=r"(l));
    return l;
}

VGPU_CG unsigned thread_of_block()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

VGPU_CG unsigned block_of_grid() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }

/* The barriers of cooperative launches. A launch's is chosen by its number, so that launches that
 * run at once don't meet; all are at rest between launches but for the top bit. */
static __device__ unsigned grid_barriers[256];

/* Every block adds one but the first, which adds what makes the sum of all flip the top bit. */
static __device__ __attribute__((noinline)) void grid_sync()
{
    __syncthreads();
    if (thread_of_block() == 0) {
        unsigned long long launch;
        __asm__("mov.u64 %0, %%gridid;" : "=l"(launch));
        unsigned *barrier = &grid_barriers[launch % 256];
        unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
        unsigned step = block_of_grid() == 0 ? 0x80000000u - (blocks - 1) : 1;
        __threadfence();
        unsigned before = atomicAdd(barrier, step);
        while (((before ^ *(volatile unsigned *)barrier) & 0x80000000u) == 0)
            ;
        __threadfence();
    }
    __syncthreads();
}

/* Values of any size go lane to lane by words. */
template <class T, class F> VGPU_CG T by_words(T v, F f)
{
    unsigned w[(sizeof(T) + 3) / 4];
    memset(w, 0, sizeof w);
    memcpy(w, &v, sizeof v);
    for (unsigned i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = f(w[i]);
    memcpy(&v, w, sizeof v);
    return v;
}

} // namespace details

/* A group of threads, of a kind that is known when the program runs. */
class thread_group {
  protected:
    enum kind_t { block_kind, grid_kind, lanes_kind };
    kind_t kind;
    unsigned mask;   /* the lanes of lanes_kind */
    unsigned first_; /* the first rank's lane, of a tile */
    VGPU_CG thread_group(kind_t k, unsigned m, unsigned f) : kind(k), mask(m), first_(f) {}
    friend VGPU_CG thread_group tiled_partition(const thread_group &, unsigned);

  public:
    VGPU_CG void sync() const
    {
        if (kind == block_kind)
            __syncthreads();
        else if (kind == grid_kind)
            details::grid_sync();
        else
            __syncwarp(mask);
    }
    VGPU_CG unsigned long long size() const
    {
        unsigned block = blockDim.x * blockDim.y * blockDim.z;
        return kind == block_kind  ? block
               : kind == grid_kind ? (unsigned long long)block * gridDim.x * gridDim.y * gridDim.z
                                   : __popc(mask);
    }
    VGPU_CG unsigned long long num_threads() const { return size(); }
    VGPU_CG unsigned long long thread_rank() const
    {
        unsigned t = details::thread_of_block();
        return kind == block_kind ? t
               : kind == grid_kind
                   ? (unsigned long long)details::block_of_grid() * (blockDim.x * blockDim.y * blockDim.z) + t
                   : __popc(mask & ((1u << details::lane()) - 1));
    }
    VGPU_CG bool is_valid() const { return true; }
};

class thread_block : public thread_group {
    VGPU_CG thread_block() : thread_group(block_kind, 0, 0) {}
    friend VGPU_CG thread_block this_thread_block();

  public:
    static VGPU_CG void sync() { __syncthreads(); }
    static VGPU_CG void barrier_wait() { __syncthreads(); }
    static VGPU_CG unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static VGPU_CG unsigned num_threads() { return size(); }
    static VGPU_CG unsigned thread_rank() { return details::thread_of_block(); }
    static VGPU_CG dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    static VGPU_CG dim3 dim_threads() { return group_dim(); }
    static VGPU_CG dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    static VGPU_CG dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
};

VGPU_CG thread_block this_thread_block() { return thread_block(); }

/* Room that tiles of several warps may need elsewhere. They have their own here. */
template <unsigned Threads = 1024> struct block_tile_memory {
    char unused;
};
template <unsigned Threads> VGPU_CG thread_block this_thread_block(block_tile_memory<Threads> &) { return this_thread_block(); }

class grid_group : public thread_group {
    VGPU_CG grid_group() : thread_group(grid_kind, 0, 0) {}
    friend VGPU_CG grid_group this_grid();

  public:
    VGPU_CG void sync() const { details::grid_sync(); }
    static VGPU_CG dim3 group_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
    static VGPU_CG dim3 dim_blocks() { return group_dim(); }
    static VGPU_CG dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    static VGPU_CG unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    static VGPU_CG unsigned long long block_rank() { return details::block_of_grid(); }
};

VGPU_CG grid_group this_grid() { return grid_group(); }

class lanes;
class coalesced_group;
namespace details {
VGPU_CG coalesced_group coalesced(unsigned mask);
VGPU_CG unsigned mask_of(const lanes &g);
} // namespace details

/* What tiles and coalesced groups have in common: lanes of a warp. */
class lanes : public thread_group {
    friend VGPU_CG unsigned details::mask_of(const lanes &);

  protected:
    VGPU_CG lanes(unsigned m, unsigned first) : thread_group(lanes_kind, m, first) {}
    /* rank's lane */
    VGPU_CG unsigned lane_of(unsigned rank) const { return __fns(mask, 0, (int)rank + 1); }

  public:
    VGPU_CG void sync() const { __syncwarp(mask); }
    VGPU_CG unsigned size() const { return __popc(mask); }
    VGPU_CG unsigned num_threads() const { return size(); }
    VGPU_CG int any(int p) const { return __any_sync(mask, p); }
    VGPU_CG int all(int p) const { return __all_sync(mask, p); }
};

class coalesced_group : public lanes {
    VGPU_CG explicit coalesced_group(unsigned m) : lanes(m, 0) {}
    friend VGPU_CG coalesced_group coalesced_threads();
    friend VGPU_CG coalesced_group details::coalesced(unsigned mask);
    VGPU_CG unsigned packed(unsigned lanes_set) const
    {
        unsigned r = 0, n = 0;
        for (unsigned m = mask; m; m &= m - 1, n++)
            r |= (lanes_set >> (__ffs((int)m) - 1) & 1) << n;
        return r;
    }

  public:
    VGPU_CG unsigned thread_rank() const { return __popc(mask & ((1u << details::lane()) - 1)); }
    VGPU_CG unsigned meta_group_size() const { return 1; }
    VGPU_CG unsigned meta_group_rank() const { return 0; }
    VGPU_CG unsigned ballot(int p) const { return packed(__ballot_sync(mask, p)); }
    template <class T> VGPU_CG unsigned match_any(T v) const { return packed(__match_any_sync(mask, v)); }
    template <class T> VGPU_CG unsigned match_all(T v, int &p) const { return packed(__match_all_sync(mask, v, &p)); }
    template <class T> VGPU_CG T shfl(T v, int rank) const
    {
        int from = (int)lane_of((unsigned)rank % size());
        unsigned m = mask;
        return details::by_words(v, [=](unsigned w) { return __shfl_sync(m, w, from); });
    }
    template <class T> VGPU_CG T shfl_up(T v, unsigned d) const
    {
        unsigned r = thread_rank();
        return shfl(v, (int)(r >= d ? r - d : r));
    }
    template <class T> VGPU_CG T shfl_down(T v, unsigned d) const
    {
        unsigned r = thread_rank();
        return shfl(v, (int)(r + d < size() ? r + d : r));
    }
};

VGPU_CG coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }
namespace details {
VGPU_CG coalesced_group coalesced(unsigned mask) { return coalesced_group(mask); }
VGPU_CG unsigned mask_of(const lanes &g) { return g.mask; }
} // namespace details

/* What a tile of Size threads does, whatever it is a part of. Those of several warps are in
 * crt/wide_tile.h. */
template <unsigned Size, bool Wide = (Size > 32)> class tile;

template <unsigned Size> class tile<Size, false> : public lanes {
    static_assert(Size && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
    static VGPU_CG unsigned first_lane() { return details::lane() & ~(Size - 1); }

  protected:
    VGPU_CG tile() : lanes((Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1) << first_lane(), first_lane()) {}

  public:
    template <class P> static VGPU_CG void prepare(const P &) {}
    static constexpr unsigned numThreads = Size;
    static VGPU_CG constexpr unsigned size() { return Size; }
    static VGPU_CG constexpr unsigned num_threads() { return Size; }
    static VGPU_CG unsigned thread_rank() { return details::lane() & (Size - 1); }
    VGPU_CG unsigned ballot(int p) const { return (__ballot_sync(mask, p) & mask) >> first_lane(); }
    template <class T> VGPU_CG unsigned match_any(T v) const { return __match_any_sync(mask, v) >> first_lane(); }
    template <class T> VGPU_CG unsigned match_all(T v, int &p) const
    {
        return __match_all_sync(mask, v, &p) >> first_lane();
    }
#define VGPU_SHFL(name, A)                                                                         \
    template <class T> VGPU_CG T name(T v, A a) const                                              \
    {                                                                                              \
        unsigned m = mask;                                                                         \
        return details::by_words(v, [=](unsigned w) { return __##name##_sync(m, w, a, Size); });   \
    }
    VGPU_SHFL(shfl, int)
    VGPU_SHFL(shfl_up, unsigned)
    VGPU_SHFL(shfl_down, unsigned)
    VGPU_SHFL(shfl_xor, unsigned)
#undef VGPU_SHFL
};

template <unsigned Size, class Parent = void> class thread_block_tile : public tile<Size> {
    template <unsigned S, class P> friend VGPU_CG thread_block_tile<S, P> tiled_partition(const P &);
    VGPU_CG thread_block_tile() {}

  public:
    static VGPU_CG unsigned meta_group_rank() { return Parent::thread_rank() / Size; }
    static VGPU_CG unsigned meta_group_size() { return (Parent::size() + Size - 1) / Size; }
};

/* A tile whose parent's type is forgotten. */
template <unsigned Size> class thread_block_tile<Size, void> : public tile<Size> {
    unsigned rank_, groups_;

  public:
    template <class P>
    VGPU_CG thread_block_tile(const thread_block_tile<Size, P> &t)
        : tile<Size>(t), rank_(t.meta_group_rank()), groups_(t.meta_group_size())
    {
    }
    VGPU_CG unsigned meta_group_rank() const { return rank_; }
    VGPU_CG unsigned meta_group_size() const { return groups_; }
};

template <unsigned S, class P> VGPU_CG thread_block_tile<S, P> tiled_partition(const P &p)
{
    tile<S>::prepare(p);
    return thread_block_tile<S, P>();
}

VGPU_CG thread_group tiled_partition(const thread_group &, unsigned size)
{
    unsigned first = details::lane() & ~(size - 1);
    return thread_group(thread_group::lanes_kind, (size == 32 ? 0xffffffffu : (1u << size) - 1) << first, first);
}

/* Groups of a group's threads, which need not have converged: its mask says who takes part. */
template <class G> VGPU_CG coalesced_group binary_partition(const G &g, bool p)
{
    unsigned all = details::mask_of(g), yes = __ballot_sync(all, p);
    return details::coalesced(p ? yes : all & ~yes);
}
template <class G, class T> VGPU_CG coalesced_group labeled_partition(const G &g, T label)
{
    return details::coalesced(__match_any_sync(details::mask_of(g), label));
}
VGPU_CG coalesced_group tiled_partition(const coalesced_group &g, unsigned size)
{
    unsigned all = details::mask_of(g), first = g.thread_rank() & ~(size - 1), part = 0, rank = 0;
    for (unsigned m = all; m; m &= m - 1, rank++)
        if ((rank & ~(size - 1)) == first)
            part |= m & -m;
    return details::coalesced(part);
}

template <class G> VGPU_CG void sync(const G &g) { g.sync(); }
template <class G> VGPU_CG unsigned long long thread_rank(const G &g) { return g.thread_rank(); }
template <class G> VGPU_CG unsigned long long group_size(const G &g) { return g.size(); }

/* Operations for reduce and the scans (cooperative_groups/reduce.h, scan.h) */

template <class T> struct plus { VGPU_CG T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { VGPU_CG T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { VGPU_CG T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { VGPU_CG T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { VGPU_CG T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { VGPU_CG T operator()(T a, T b) const { return a ^ b; } };

template <class G, class T, class F> VGPU_CG T inclusive_scan(const G &g, T v, F f)
{
    for (unsigned d = 1; d < g.size(); d *= 2) {
        T before = g.shfl_up(v, d);
        if (g.thread_rank() >= d)
            v = f(before, v);
    }
    return v;
}
template <class G, class T> VGPU_CG T inclusive_scan(const G &g, T v) { return inclusive_scan(g, v, plus<T>()); }
template <class G, class T, class F> VGPU_CG T exclusive_scan(const G &g, T v, F f)
{
    T before = g.shfl_up(inclusive_scan(g, v, f), 1);
    return g.thread_rank() ? before : T();
}
template <class G, class T> VGPU_CG T exclusive_scan(const G &g, T v) { return exclusive_scan(g, v, plus<T>()); }
template <class G, class T, class F> VGPU_CG T reduce(const G &g, T v, F f)
{
    return g.shfl(inclusive_scan(g, v, f), (int)g.size() - 1);
}

} // namespace cooperative_groups

#include "crt/wide_tile.h"

#undef VGPU_CG

#endif

#endif
