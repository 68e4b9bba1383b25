#ifndef VGPU_CU_COMPLEX_H
#define VGPU_CU_COMPLEX_H
#define CU_COMPLEX_H_

/* Complex numbers as pairs of floats or doubles, for C and C++, in host and device code. */

#include <math.h>

#include "vector_functions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#define VGPU_BOTH static __inline__ __host__ __device__

/* Each function for T, whose names end with f for floats. A quotient's operands are divided by the
 * divisor's magnitude first, so that squares neither overflow nor vanish. */
#define VGPU_COMPLEX(C, T, f, make)                                                                \
    VGPU_BOTH T cuCreal##f(C a) { return a.x; }                                                    \
    VGPU_BOTH T cuCimag##f(C a) { return a.y; }                                                    \
    VGPU_BOTH C make_cu##make(T re, T im)                                                          \
    {                                                                                              \
        C c;                                                                                       \
        c.x = re;                                                                                  \
        c.y = im;                                                                                  \
        return c;                                                                                  \
    }                                                                                              \
    VGPU_BOTH C cuConj##f(C a) { return make_cu##make(a.x, -a.y); }                                \
    VGPU_BOTH C cuCadd##f(C a, C b) { return make_cu##make(a.x + b.x, a.y + b.y); }                \
    VGPU_BOTH C cuCsub##f(C a, C b) { return make_cu##make(a.x - b.x, a.y - b.y); }                \
    VGPU_BOTH C cuCmul##f(C a, C b) { return make_cu##make(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); } \
    VGPU_BOTH C cuCdiv##f(C a, C b)                                                                \
    {                                                                                              \
        T scale = 1 / (fabs##f(b.x) + fabs##f(b.y)), x = b.x * scale, y = b.y * scale;             \
        T re = a.x * scale, im = a.y * scale, square = 1 / (x * x + y * y);                        \
        return make_cu##make((re * x + im * y) * square, (im * x - re * y) * square);              \
    }                                                                                              \
    VGPU_BOTH T cuCabs##f(C a) { return hypot##f(a.x, a.y); }                                      \
    VGPU_BOTH C cuCfma##f(C a, C b, C c)                                                           \
    {                                                                                              \
        return make_cu##make(a.x * b.x + c.x - a.y * b.y, a.x * b.y + c.y + a.y * b.x);            \
    }
VGPU_COMPLEX(cuFloatComplex, float, f, FloatComplex)
VGPU_COMPLEX(cuDoubleComplex, double, , DoubleComplex)
#undef VGPU_COMPLEX

VGPU_BOTH cuComplex make_cuComplex(float re, float im) { return make_cuFloatComplex(re, im); }
VGPU_BOTH cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return make_cuDoubleComplex(a.x, a.y); }
VGPU_BOTH cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a)
{
    return make_cuFloatComplex((float)a.x, (float)a.y);
}

#undef VGPU_BOTH

#ifdef __cplusplus
}
#endif

#endif
