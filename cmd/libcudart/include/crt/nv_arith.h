#ifndef VGPU_CRT_NV_ARITH_H
#define VGPU_CRT_NV_ARITH_H

/* Arithmetic with a rounding mode, conversions, and integers: each is one instruction or few. */

#define NV static __device__ __inline__ __attribute__((always_inline))

/* r is the mode in CUDA's names, and b in those of the compiler's builtins. */
#define NV_ROUNDED(r, b_)                                                                          \
    NV double __nv_dadd_##r(double a, double b) { return __nvvm_add_##b_##_d(a, b); }              \
    NV double __nv_dsub_##r(double a, double b) { return __nvvm_add_##b_##_d(a, -b); }             \
    NV double __nv_dmul_##r(double a, double b) { return __nvvm_mul_##b_##_d(a, b); }              \
    NV double __nv_ddiv_##r(double a, double b) { return __nvvm_div_##b_##_d(a, b); }              \
    NV double __nv_drcp_##r(double a) { return __nvvm_rcp_##b_##_d(a); }                           \
    NV double __nv_dsqrt_##r(double a) { return __nvvm_sqrt_##b_##_d(a); }                         \
    NV double __nv_fma_##r(double a, double b, double c) { return __nvvm_fma_##b_##_d(a, b, c); }  \
    NV float __nv_fadd_##r(float a, float b) { return __nvvm_add_##b_##_f(a, b); }                 \
    NV float __nv_fsub_##r(float a, float b) { return __nvvm_add_##b_##_f(a, -b); }                \
    NV float __nv_fmul_##r(float a, float b) { return __nvvm_mul_##b_##_f(a, b); }                 \
    NV float __nv_fdiv_##r(float a, float b) { return __nvvm_div_##b_##_f(a, b); }                 \
    NV float __nv_frcp_##r(float a) { return __nvvm_rcp_##b_##_f(a); }                             \
    NV float __nv_fsqrt_##r(float a) { return __nvvm_sqrt_##b_##_f(a); }                           \
    NV float __nv_fmaf_##r(float a, float b, float c) { return __nvvm_fma_##b_##_f(a, b, c); }     \
    NV float __nv_fmaf_ieee_##r(float a, float b, float c) { return __nvvm_fma_##b_##_f(a, b, c); }\
    NV float __nv_double2float_##r(double a) { return __nvvm_d2f_##b_(a); }                        \
    NV int __nv_double2int_##r(double a) { return __nvvm_d2i_##b_(a); }                            \
    NV unsigned __nv_double2uint_##r(double a) { return __nvvm_d2ui_##b_(a); }                     \
    NV long long __nv_double2ll_##r(double a) { return __nvvm_d2ll_##b_(a); }                      \
    NV unsigned long long __nv_double2ull_##r(double a) { return __nvvm_d2ull_##b_(a); }           \
    NV int __nv_float2int_##r(float a) { return __nvvm_f2i_##b_(a); }                              \
    NV unsigned __nv_float2uint_##r(float a) { return __nvvm_f2ui_##b_(a); }                       \
    NV long long __nv_float2ll_##r(float a) { return __nvvm_f2ll_##b_(a); }                        \
    NV unsigned long long __nv_float2ull_##r(float a) { return __nvvm_f2ull_##b_(a); }             \
    NV float __nv_int2float_##r(int a) { return __nvvm_i2f_##b_(a); }                              \
    NV float __nv_uint2float_##r(unsigned a) { return __nvvm_ui2f_##b_(a); }                       \
    NV float __nv_ll2float_##r(long long a) { return __nvvm_ll2f_##b_(a); }                        \
    NV float __nv_ull2float_##r(unsigned long long a) { return __nvvm_ull2f_##b_(a); }             \
    NV double __nv_ll2double_##r(long long a) { return __nvvm_ll2d_##b_(a); }                      \
    NV double __nv_ull2double_##r(unsigned long long a) { return __nvvm_ull2d_##b_(a); }
NV_ROUNDED(rn, rn)
NV_ROUNDED(rz, rz)
NV_ROUNDED(rd, rm)
NV_ROUNDED(ru, rp)
#undef NV_ROUNDED

NV double __nv_int2double_rn(int a) { return a; }
NV double __nv_uint2double_rn(unsigned a) { return a; }

/* Bits */

NV int __nv_float_as_int(float a) { return __builtin_bit_cast(int, a); }
NV unsigned __nv_float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
NV float __nv_int_as_float(int a) { return __builtin_bit_cast(float, a); }
NV float __nv_uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
NV long long __nv_double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }
NV double __nv_longlong_as_double(long long a) { return __builtin_bit_cast(double, a); }
NV int __nv_double2loint(double a) { return (int)__nv_double_as_longlong(a); }
NV int __nv_double2hiint(double a) { return (int)(__nv_double_as_longlong(a) >> 32); }
NV double __nv_hiloint2double(int hi, int lo)
{
    return __nv_longlong_as_double((long long)((unsigned long long)(unsigned)hi << 32 | (unsigned)lo));
}

NV unsigned short __nv_float2half_rn(float a)
{
    unsigned short h;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(a));
    return h;
}
NV float __nv_half2float(unsigned short h)
{
    float a;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(h));
    return a;
}

/* Integers */

NV int __nv_abs(int a) { return a < 0 ? -a : a; }
NV long long __nv_llabs(long long a) { return a < 0 ? -a : a; }
NV int __nv_min(int a, int b) { return a < b ? a : b; }
NV int __nv_max(int a, int b) { return a > b ? a : b; }
NV unsigned __nv_umin(unsigned a, unsigned b) { return a < b ? a : b; }
NV unsigned __nv_umax(unsigned a, unsigned b) { return a > b ? a : b; }
NV long long __nv_llmin(long long a, long long b) { return a < b ? a : b; }
NV long long __nv_llmax(long long a, long long b) { return a > b ? a : b; }
NV unsigned long long __nv_ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
NV unsigned long long __nv_ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
NV int __nv_brev(int a) { return (int)__builtin_bitreverse32((unsigned)a); }
NV long long __nv_brevll(long long a) { return (long long)__builtin_bitreverse64((unsigned long long)a); }
NV int __nv_clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
NV int __nv_clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
NV int __nv_ffs(int a) { return a ? __builtin_ctz((unsigned)a) + 1 : 0; }
NV int __nv_ffsll(long long a) { return a ? __builtin_ctzll((unsigned long long)a) + 1 : 0; }
NV int __nv_popc(unsigned a) { return __builtin_popcount(a); }
NV int __nv_popcll(unsigned long long a) { return __builtin_popcountll(a); }
NV int __nv_mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
NV unsigned __nv_umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
NV long long __nv_mul64hi(long long a, long long b) { return __nvvm_mulhi_ll(a, b); }
NV unsigned long long __nv_umul64hi(unsigned long long a, unsigned long long b) { return __nvvm_mulhi_ull(a, b); }
NV int __nv_mul24(int a, int b) { return __nvvm_mul24_i(a, b); }
NV unsigned __nv_umul24(unsigned a, unsigned b) { return __nvvm_mul24_ui(a, b); }
NV int __nv_hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
NV int __nv_rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
NV unsigned __nv_uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
NV unsigned __nv_urhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b + 1) >> 1); }
NV int __nv_sad(int a, int b, int c)
{
    return (int)((a < b ? (unsigned)b - (unsigned)a : (unsigned)a - (unsigned)b) + (unsigned)c);
}
NV unsigned __nv_usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
NV int __nv_byte_perm(int a, int b, int s)
{
    int d;
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(s));
    return d;
}

/* Numbers that instructions round, compare and take apart */

#define NV_BOTH(name, wide, narrow)                                                                \
    NV double __nv_##name(double a) { return wide(a); }                                            \
    NV float __nv_##name##f(float a) { return narrow(a); }
NV_BOTH(fabs, __nvvm_fabs_d, __nvvm_fabs_f)
NV_BOTH(floor, __nvvm_floor_d, __nvvm_floor_f)
NV_BOTH(ceil, __nvvm_ceil_d, __nvvm_ceil_f)
NV_BOTH(trunc, __nvvm_trunc_d, __nvvm_trunc_f)
NV_BOTH(rint, __builtin_rint, __builtin_rintf)
NV_BOTH(nearbyint, __builtin_rint, __builtin_rintf)
NV_BOTH(sqrt, __nvvm_sqrt_rn_d, __nvvm_sqrt_rn_f)
#undef NV_BOTH

NV double __nv_fma(double a, double b, double c) { return __nvvm_fma_rn_d(a, b, c); }
NV float __nv_fmaf(float a, float b, float c) { return __nvvm_fma_rn_f(a, b, c); }
NV double __nv_fmin(double a, double b) { return __nvvm_fmin_d(a, b); }
NV float __nv_fminf(float a, float b) { return __nvvm_fmin_f(a, b); }
NV double __nv_fmax(double a, double b) { return __nvvm_fmax_d(a, b); }
NV float __nv_fmaxf(float a, float b) { return __nvvm_fmax_f(a, b); }
NV float __nv_saturatef(float a) { return __nvvm_saturate_f(a); }
NV double __nv_rsqrt(double a) { return 1 / __nv_sqrt(a); }
NV float __nv_rsqrtf(float a) { return __nvvm_rsqrt_approx_f(a); }
NV float __nv_frsqrt_rn(float a) { return (float)(1 / __nv_sqrt((double)a)); }
NV double __nv_rcp64h(double a) { return 1 / a; }
NV double __nv_copysign(double a, double b)
{
    return __nv_longlong_as_double((__nv_double_as_longlong(a) & 0x7fffffffffffffffll) |
                                   (__nv_double_as_longlong(b) & ~0x7fffffffffffffffll));
}
NV float __nv_copysignf(float a, float b)
{
    return __nv_int_as_float((__nv_float_as_int(a) & 0x7fffffff) | (__nv_float_as_int(b) & ~0x7fffffff));
}
NV int __nv_signbitd(double a) { return __nv_double_as_longlong(a) < 0; }
NV int __nv_signbitf(float a) { return __nv_float_as_int(a) < 0; }
NV int __nv_isnand(double a) { return a != a; }
NV int __nv_isnanf(float a) { return a != a; }
NV int __nv_isinfd(double a) { return __nv_fabs(a) == __builtin_inf(); }
NV int __nv_isinff(float a) { return __nv_fabsf(a) == __builtin_inff(); }
NV int __nv_isfinited(double a) { return __nv_fabs(a) < __builtin_inf(); }
NV int __nv_finitef(float a) { return __nv_fabsf(a) < __builtin_inff(); }
NV double __nv_fdim(double a, double b) { return a != a || b != b ? a + b : a > b ? a - b : 0; }
NV float __nv_fdimf(float a, float b) { return a != a || b != b ? a + b : a > b ? a - b : 0; }
NV double __nv_nan(const signed char *) { return __builtin_nan(""); }
NV float __nv_nanf(const signed char *) { return __builtin_nanf(""); }

NV double __nv_round(double a)
{
    double t = __nv_trunc(a);
    return __nv_copysign(__nv_fabs(a - t) >= 0.5 ? t + __nv_copysign(1, a) : t, a);
}
NV float __nv_roundf(float a)
{
    float t = __nv_truncf(a);
    return __nv_copysignf(__nv_fabsf(a - t) >= 0.5f ? t + __nv_copysignf(1, a) : t, a);
}
NV long long __nv_llrint(double a) { return __nvvm_d2ll_rn(a); }
NV long long __nv_llrintf(float a) { return __nvvm_f2ll_rn(a); }
NV long long __nv_llround(double a) { return __nvvm_d2ll_rz(__nv_round(a)); }
NV long long __nv_llroundf(float a) { return __nvvm_f2ll_rz(__nv_roundf(a)); }

/* Approximations that the hardware has */

NV float __nv_fast_sinf(float a) { return __nvvm_sin_approx_f(a); }
NV float __nv_fast_cosf(float a) { return __nvvm_cos_approx_f(a); }
NV void __nv_fast_sincosf(float a, float *s, float *c)
{
    *s = __nvvm_sin_approx_f(a);
    *c = __nvvm_cos_approx_f(a);
}
NV float __nv_fast_fdividef(float a, float b) { return __nvvm_div_approx_f(a, b); }
NV float __nv_fast_tanf(float a) { return __nv_fast_fdividef(__nv_fast_sinf(a), __nv_fast_cosf(a)); }
NV float __nv_fast_log2f(float a) { return __nvvm_lg2_approx_f(a); }
NV float __nv_fast_logf(float a) { return 0.693147181f * __nvvm_lg2_approx_f(a); }
NV float __nv_fast_log10f(float a) { return 0.301029996f * __nvvm_lg2_approx_f(a); }
NV float __nv_fast_expf(float a) { return __nvvm_ex2_approx_f(1.442695041f * a); }
NV float __nv_fast_exp10f(float a) { return __nvvm_ex2_approx_f(3.321928095f * a); }
NV float __nv_fast_powf(float a, float b) { return __nvvm_ex2_approx_f(b * __nvvm_lg2_approx_f(a)); }

#endif
