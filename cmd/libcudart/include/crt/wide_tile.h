/* Tiles of several warps (CUDA C++ Programming Guide, Cooperative Groups, Thread Block Tile): for
 * cooperative_groups.h, which includes this. Their threads meet, and exchange values, in shared memory. */

namespace cooperative_groups {

namespace details {

VGPU_CG unsigned warp_of_block() { return thread_of_block() / 32; }

/* Where the warps of a tile meet. */
struct meeting {
    unsigned arrived, phase;
};

/* The meetings of a block's tiles of Size threads, by their first warp. */
template <unsigned Size> VGPU_CG meeting &meeting_of()
{
    __shared__ meeting all[1024 / Size];
    return all[thread_of_block() / Size];
}

/* A value of each warp of the block. */
template <class T> VGPU_CG char *slot(unsigned warp)
{
    __shared__ __attribute__((aligned(16))) char all[32 * sizeof(T)];
    return all + warp * sizeof(T);
}
template <class T> VGPU_CG void put(unsigned warp, const T &v) { memcpy(slot<T>(warp), &v, sizeof v); }
template <class T> VGPU_CG T got(unsigned warp)
{
    T v;
    memcpy(&v, slot<T>(warp), sizeof v);
    return v;
}

} // namespace details

template <unsigned Size> class tile<Size, true> {
    static_assert(Size <= 1024 && (Size & (Size - 1)) == 0, "a tile has 64, 128, 256, 512 or 1024 threads, or fewer");

  protected:
    VGPU_CG tile() {}

  public:
    static constexpr unsigned numThreads = Size;
    template <class P> static VGPU_CG void prepare(const P &p)
    {
        p.sync(); /* nobody is in an earlier tile */
        if (thread_rank() == 0)
            details::meeting_of<Size>() = details::meeting{0, 0};
        p.sync();
    }
    static VGPU_CG constexpr unsigned size() { return Size; }
    static VGPU_CG constexpr unsigned num_threads() { return Size; }
    static VGPU_CG unsigned thread_rank() { return details::thread_of_block() % Size; }
    static VGPU_CG void sync()
    {
        volatile details::meeting &m = details::meeting_of<Size>();
        __syncwarp();
        if (details::lane() == 0) {
            __threadfence_block();
            unsigned phase = m.phase; /* it lasts until this warp has arrived */
            if (atomicAdd((unsigned *)&m.arrived, 1u) == Size / 32 - 1) {
                m.arrived = 0;
                __threadfence_block();
                m.phase = phase + 1;
            } else {
                while (m.phase == phase)
                    ;
            }
            __threadfence_block();
        }
        __syncwarp();
    }
    static VGPU_CG unsigned first_warp() { return details::warp_of_block() & ~(Size / 32 - 1); }
    template <class T> VGPU_CG T shfl(T v, int rank) const
    {
        unsigned from = (unsigned)rank % Size, warp = first_warp() + from / 32;
        if (thread_rank() == from)
            details::put(warp, v);
        sync();
        v = details::got<T>(warp);
        sync();
        return v;
    }
    /* Every thread's f(warps' values in order, so far, this one's). */
    template <class T, class F> VGPU_CG T combine(T of_warp, F f) const
    {
        unsigned first = first_warp();
        if (details::lane() == 0)
            details::put(details::warp_of_block(), of_warp);
        sync();
        T all = details::got<T>(first);
        for (unsigned i = 1; i < Size / 32; i++)
            all = f(all, details::got<T>(first + i));
        sync();
        return all;
    }
    VGPU_CG int any(int p) const
    {
        return combine(__any_sync(0xffffffffu, p), [](int a, int b) { return a | b; });
    }
    VGPU_CG int all(int p) const
    {
        return combine(__all_sync(0xffffffffu, p), [](int a, int b) { return a & b; });
    }
};

namespace details {

struct warp : tile<32> {
    VGPU_CG warp() {}
};

template <bool B, class T> struct only_if {};
template <class T> struct only_if<true, T> { typedef T type; };

/* The scans of a tile, with whether the thread is the first. */
template <unsigned S, class P, class T, class F>
VGPU_CG T wide_scan(const thread_block_tile<S, P> &g, T v, F f, bool exclusive)
{
    warp w;
    T inclusive = cooperative_groups::inclusive_scan(w, v, f);
    unsigned first = g.first_warp(), own = warp_of_block();
    T r = exclusive ? w.shfl_up(inclusive, 1) : inclusive;
    if (lane() == 31)
        put(own, inclusive);
    g.sync();
    if (own != first) {
        T before = got<T>(first);
        for (unsigned i = first + 1; i < own; i++)
            before = f(before, got<T>(i));
        r = exclusive && lane() == 0 ? before : f(before, r);
    } else if (exclusive && lane() == 0) {
        r = T();
    }
    g.sync();
    return r;
}

} // namespace details

#define VGPU_WIDE(S, T) VGPU_CG typename details::only_if<(S > 32), T>::type
template <unsigned S, class P, class T, class F> VGPU_WIDE(S, T) reduce(const thread_block_tile<S, P> &g, T v, F f)
{
    details::warp w;
    return g.combine(reduce(w, v, f), f);
}
template <unsigned S, class P, class T, class F> VGPU_WIDE(S, T) inclusive_scan(const thread_block_tile<S, P> &g, T v, F f)
{
    return details::wide_scan(g, v, f, false);
}
template <unsigned S, class P, class T, class F> VGPU_WIDE(S, T) exclusive_scan(const thread_block_tile<S, P> &g, T v, F f)
{
    return details::wide_scan(g, v, f, true);
}
template <unsigned S, class P, class T> VGPU_WIDE(S, T) inclusive_scan(const thread_block_tile<S, P> &g, T v)
{
    return inclusive_scan(g, v, plus<T>());
}
template <unsigned S, class P, class T> VGPU_WIDE(S, T) exclusive_scan(const thread_block_tile<S, P> &g, T v)
{
    return exclusive_scan(g, v, plus<T>());
}
#undef VGPU_WIDE

} // namespace cooperative_groups
