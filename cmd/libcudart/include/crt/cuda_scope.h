#ifndef VGPU_CRT_CUDA_SCOPE_H
#define VGPU_CRT_CUDA_SCOPE_H

/* What cuda/barrier, cuda/pipeline and cuda/atomic have in common. */

#include "../cuda_runtime.h"

#include <cstddef>

namespace cuda {

enum thread_scope { thread_scope_system = 0, thread_scope_device = 1, thread_scope_block = 2, thread_scope_thread = 10 };

/* A size in bytes of memory that is aligned. */
template <std::size_t Alignment> struct aligned_size_t {
    static constexpr std::size_t align = Alignment;
    std::size_t value;
    __host__ __device__ explicit constexpr aligned_size_t(std::size_t n) : value(n) {}
    __host__ __device__ constexpr operator std::size_t() const { return value; }
};

} // namespace cuda

#endif
