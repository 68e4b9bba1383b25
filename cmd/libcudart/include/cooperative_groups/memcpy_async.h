#ifndef VGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H
#define VGPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H

/* Asynchronous copies by a group (CUDA C++ Programming Guide, Cooperative Groups, Data Transfer). Every
 * thread's part of a call is a group of copies. */

#include "../cooperative_groups.h"
#include "../cuda/barrier"

#if defined(__CUDA__) && defined(__cplusplus)

#define VGPU_CG __device__ __inline__ __attribute__((always_inline))

namespace cooperative_groups {

template <class G, class T> VGPU_CG void memcpy_async(const G &g, T *to, const T *from, std::size_t bytes)
{
    cuda::vgpu_copy_part(g, to, from, bytes);
    vgpu_copy_commit();
}
template <class G, class T, std::size_t A>
VGPU_CG void memcpy_async(const G &g, T *to, const T *from, const cuda::aligned_size_t<A> &bytes)
{
    memcpy_async(g, to, from, bytes.value);
}
/* The sizes are numbers of elements. */
template <class G, class T>
VGPU_CG void memcpy_async(const G &g, T *to, std::size_t room, const T *from, std::size_t n)
{
    memcpy_async(g, to, from, (room < n ? room : n) * sizeof(T));
}

template <class G> VGPU_CG void wait(const G &g)
{
    vgpu_copy_wait_all();
    g.sync();
}
template <unsigned N, class G> VGPU_CG void wait_prior(const G &g)
{
    vgpu_copy_wait(N);
    g.sync();
}

} // namespace cooperative_groups

#undef VGPU_CG

#endif

#endif
