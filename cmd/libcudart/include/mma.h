#ifndef VGPU_MMA_H
#define VGPU_MMA_H
#define __CUDA_MMA_H__

/* Matrices of a warp (CUDA C++ Programming Guide, Warp Matrix Functions), over the compiler's
 * functions for each shape and type. */

#include "cuda_bf16.h"

#if defined(__CUDA__) && defined(__cplusplus)

#define VGPU_DEVICE static inline __device__ __attribute__((always_inline))

VGPU_DEVICE float __float_to_tf32(float f)
{
    unsigned bits;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(f));
    __builtin_memcpy(&f, &bits, 4);
    return f;
}

namespace nvcuda {
namespace wmma {

using ::__float_to_tf32;

enum layout_t { mem_row_major, mem_col_major };
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
namespace precision {
struct tf32 {};
} // namespace precision

namespace details {

/* A thread's part of a matrix: N elements, in registers of the type R. */
template <class T, int N, class R> struct part {
    enum { num_elements = N };
    T x[N];
    VGPU_DEVICE R *registers(part &p) { return (R *)(void *)p.x; }
    VGPU_DEVICE const R *registers(const part &p) { return (const R *)(const void *)p.x; }
};

/* How the compiler's functions are told a layout. */
template <class L> struct order;
template <> struct order<row_major> { enum { value = 0 }; };
template <> struct order<col_major> { enum { value = 1 }; };

} // namespace details

template <class Use, int m, int n, int k, class T, class Layout = void> class fragment;

template <class Use, int m, int n, int k, class T, class Layout, class V>
VGPU_DEVICE void fill_fragment(fragment<Use, m, n, k, T, Layout> &f, const V &v)
{
    for (int i = 0; i < f.num_elements; i++)
        f.x[i] = v;
}

/* A matrix of factors: what it is, its shape and its type; how many elements a thread has, their type
 * and that of the registers; the type in memory; the compiler's function. */
#define VGPU_FACTOR(use, M, N, K, T, count, E, R, memory, load)                                    \
    template <class L> class fragment<use, M, N, K, T, L> : public details::part<E, count, R> {};  \
    template <class L>                                                                             \
    VGPU_DEVICE void load_matrix_sync(fragment<use, M, N, K, T, L> &f, const memory *p, unsigned stride) \
    {                                                                                              \
        load(f.registers(f), (const R *)(const void *)p, stride, details::order<L>::value);        \
    }
/* A matrix of sums. */
#define VGPU_SUM(M, N, K, T, count, R, load, store)                                                \
    template <> class fragment<accumulator, M, N, K, T, void> : public details::part<T, count, R> {}; \
    VGPU_DEVICE void load_matrix_sync(fragment<accumulator, M, N, K, T> &f, const T *p, unsigned stride, layout_t l) \
    {                                                                                              \
        if (l == mem_row_major)                                                                    \
            load(f.registers(f), (const R *)(const void *)p, stride, 0);                           \
        else                                                                                       \
            load(f.registers(f), (const R *)(const void *)p, stride, 1);                           \
    }                                                                                              \
    VGPU_DEVICE void store_matrix_sync(T *p, const fragment<accumulator, M, N, K, T> &f, unsigned stride, layout_t l) \
    {                                                                                              \
        if (l == mem_row_major)                                                                    \
            store((R *)(void *)p, f.registers(f), stride, 0);                                      \
        else                                                                                       \
            store((R *)(void *)p, f.registers(f), stride, 1);                                      \
    }
/* A product: the types of the factors, of its sum and of the one that is added. */
#define VGPU_PRODUCT(M, N, K, T, D, C, function, saturate)                                         \
    template <class LA, class LB>                                                                  \
    VGPU_DEVICE void mma_sync(fragment<accumulator, M, N, K, D> &d, const fragment<matrix_a, M, N, K, T, LA> &a, \
        const fragment<matrix_b, M, N, K, T, LB> &b, const fragment<accumulator, M, N, K, C> &c, bool s = false) \
    {                                                                                              \
        enum { order = details::order<LA>::value * 2 + details::order<LB>::value };                \
        (void)s;                                                                                   \
        saturate(function, d.registers(d), a.registers(a), b.registers(b), c.registers(c), order); \
    }
#define VGPU_SATURATE(f, d, a, b, c, order) (s ? f(d, a, b, c, order, 1) : f(d, a, b, c, order, 0))
#define VGPU_PLAIN(f, d, a, b, c, order) f(d, a, b, c, order, 0)

/* Halves. */
#define VGPU_SHAPE(M, N, K, shape)                                                                 \
    VGPU_FACTOR(matrix_a, M, N, K, __half, 16, __half, int, __half, __hmma_##shape##_ld_a)         \
    VGPU_FACTOR(matrix_b, M, N, K, __half, 16, __half, int, __half, __hmma_##shape##_ld_b)         \
    VGPU_SUM(M, N, K, __half, 8, int, __hmma_##shape##_ld_c_f16, __hmma_##shape##_st_c_f16)        \
    VGPU_SUM(M, N, K, float, 8, float, __hmma_##shape##_ld_c_f32, __hmma_##shape##_st_c_f32)       \
    VGPU_PRODUCT(M, N, K, __half, float, float, __hmma_##shape##_mma_f32f32, VGPU_PLAIN)           \
    VGPU_PRODUCT(M, N, K, __half, __half, __half, __hmma_##shape##_mma_f16f16, VGPU_PLAIN)         \
    VGPU_PRODUCT(M, N, K, __half, float, __half, __hmma_##shape##_mma_f32f16, VGPU_PLAIN)          \
    VGPU_PRODUCT(M, N, K, __half, __half, float, __hmma_##shape##_mma_f16f32, VGPU_PLAIN)
VGPU_SHAPE(16, 16, 16, m16n16k16)
VGPU_SHAPE(32, 8, 16, m32n8k16)
VGPU_SHAPE(8, 32, 16, m8n32k16)
#undef VGPU_SHAPE

/* bfloat16, and integers of 8 bits: the larger factor has more elements. */
#define VGPU_SHAPE(M, N, K, shape, A, B)                                                           \
    VGPU_FACTOR(matrix_a, M, N, K, __nv_bfloat16, A, __nv_bfloat16, int, __nv_bfloat16, __mma_bf16_##shape##_ld_a) \
    VGPU_FACTOR(matrix_b, M, N, K, __nv_bfloat16, B, __nv_bfloat16, int, __nv_bfloat16, __mma_bf16_##shape##_ld_b) \
    VGPU_PRODUCT(M, N, K, __nv_bfloat16, float, float, __mma_bf16_##shape##_mma_f32, VGPU_PLAIN)    \
    VGPU_FACTOR(matrix_a, M, N, K, signed char, A, signed char, int, signed char, __imma_##shape##_ld_a_s8) \
    VGPU_FACTOR(matrix_b, M, N, K, signed char, B, signed char, int, signed char, __imma_##shape##_ld_b_s8) \
    VGPU_FACTOR(matrix_a, M, N, K, unsigned char, A, unsigned char, int, unsigned char, __imma_##shape##_ld_a_u8) \
    VGPU_FACTOR(matrix_b, M, N, K, unsigned char, B, unsigned char, int, unsigned char, __imma_##shape##_ld_b_u8) \
    VGPU_SUM(M, N, K, int, 8, int, __imma_##shape##_ld_c, __imma_##shape##_st_c_i32)               \
    VGPU_PRODUCT(M, N, K, signed char, int, int, __imma_##shape##_mma_s8, VGPU_SATURATE)           \
    VGPU_PRODUCT(M, N, K, unsigned char, int, int, __imma_##shape##_mma_u8, VGPU_SATURATE)
VGPU_SHAPE(16, 16, 16, m16n16k16, 8, 8)
VGPU_SHAPE(32, 8, 16, m32n8k16, 16, 4)
VGPU_SHAPE(8, 32, 16, m8n32k16, 4, 16)
#undef VGPU_SHAPE

/* Floats with 10 bits after the point. */
VGPU_FACTOR(matrix_a, 16, 16, 8, precision::tf32, 4, float, int, float, __mma_tf32_m16n16k8_ld_a)
VGPU_FACTOR(matrix_b, 16, 16, 8, precision::tf32, 4, float, int, float, __mma_tf32_m16n16k8_ld_b)
VGPU_SUM(16, 16, 8, float, 8, float, __mma_tf32_m16n16k8_ld_c, __mma_m16n16k8_st_c_f32)
VGPU_PRODUCT(16, 16, 8, precision::tf32, float, float, __mma_tf32_m16n16k8_mma_f32, VGPU_PLAIN)

/* Doubles. */
VGPU_FACTOR(matrix_a, 8, 8, 4, double, 1, double, double, double, __dmma_m8n8k4_ld_a)
VGPU_FACTOR(matrix_b, 8, 8, 4, double, 1, double, double, double, __dmma_m8n8k4_ld_b)
VGPU_SUM(8, 8, 4, double, 2, double, __dmma_m8n8k4_ld_c, __dmma_m8n8k4_st_c_f64)
VGPU_PRODUCT(8, 8, 4, double, double, double, __dmma_m8n8k4_mma_f64, VGPU_PLAIN)

#undef VGPU_FACTOR
#undef VGPU_SUM
#undef VGPU_PRODUCT
#undef VGPU_SATURATE
#undef VGPU_PLAIN

} // namespace wmma
} // namespace nvcuda

#undef VGPU_DEVICE

#endif

#endif
