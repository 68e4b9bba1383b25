#ifndef VGPU_CURAND_KERNEL_H
#define VGPU_CURAND_KERNEL_H
#define CURAND_KERNEL_H_

/* Random numbers in kernels (cuRAND's device API): the pseudorandom generators, from their authors'
 * papers, and the distributions. How a seed becomes a state is in no paper but Philox's, whose key it is:
 * the numbers of the others differ from cuRAND's for the same seed. */

#include "cuda_runtime.h"

#include "crt/random_mrg.h"
#include "crt/random_philox.h"
#include "crt/random_xorwow.h"

/* More than 0, at most 1. */
template <class S> VGPU_RANDOM float curand_uniform(S *s)
{
    return (float)curand(s) * 0x1p-32f + 0x1p-33f;
}

template <class S> VGPU_RANDOM double curand_uniform_double(S *s)
{
    unsigned low = curand(s), high = curand(s);
    return (double)(low ^ (unsigned long long)high << 21) * 0x1p-53 + 0x1p-54;
}

/* Two at a time, by Box and Muller. */
template <class S> VGPU_RANDOM float2 curand_normal2(S *s)
{
    float r = sqrtf(-2 * logf(curand_uniform(s))), angle = 6.2831853f * curand_uniform(s);
    return make_float2(r * sinf(angle), r * cosf(angle));
}

template <class S> VGPU_RANDOM double2 curand_normal2_double(S *s)
{
    double r = sqrt(-2 * log(curand_uniform_double(s))), angle = 6.283185307179586 * curand_uniform_double(s);
    return make_double2(r * sin(angle), r * cos(angle));
}

template <class S> VGPU_RANDOM float curand_normal(S *s)
{
    s->normal.has_float = !s->normal.has_float;
    if (!s->normal.has_float)
        return s->normal.f;
    float2 v = curand_normal2(s);
    s->normal.f = v.y;
    return v.x;
}

template <class S> VGPU_RANDOM double curand_normal_double(S *s)
{
    s->normal.has_double = !s->normal.has_double;
    if (!s->normal.has_double)
        return s->normal.d;
    double2 v = curand_normal2_double(s);
    s->normal.d = v.y;
    return v.x;
}

template <class S> VGPU_RANDOM float curand_log_normal(S *s, float mean, float deviation)
{
    return expf(mean + deviation * curand_normal(s));
}

template <class S> VGPU_RANDOM double curand_log_normal_double(S *s, double mean, double deviation)
{
    return exp(mean + deviation * curand_normal_double(s));
}

template <class S> VGPU_RANDOM float2 curand_log_normal2(S *s, float mean, float deviation)
{
    float2 v = curand_normal2(s);
    return make_float2(expf(mean + deviation * v.x), expf(mean + deviation * v.y));
}

template <class S> VGPU_RANDOM double2 curand_log_normal2_double(S *s, double mean, double deviation)
{
    double2 v = curand_normal2_double(s);
    return make_double2(exp(mean + deviation * v.x), exp(mean + deviation * v.y));
}

/* A small mean by products of uniform numbers (D. E. Knuth, Seminumerical Algorithms, section 3.4.1), a
 * large one by W. Hörmann's transformed rejection (PTRS), 1993. */
template <class S> VGPU_RANDOM unsigned curand_poisson(S *s, double mean)
{
    if (mean < 64) {
        unsigned n = 0;
        for (double product = curand_uniform_double(s), least = exp(-mean); product > least; n++)
            product *= curand_uniform_double(s);
        return n;
    }
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
    for (;;) {
        double u = curand_uniform_double(s) - 0.5, v = curand_uniform_double(s), side = 0.5 - fabs(u);
        double k = floor((2 * a / side + b) * u + mean + 0.43);
        if (side >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2))
            return (unsigned)k;
        if (k < 0 || (side < 0.013 && v > side))
            continue;
        if (log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (side * side) + b)) <= k * log(mean) - mean - lgamma(k + 1))
            return (unsigned)k;
    }
}

/* Four at a time, of Philox alone. */
VGPU_RANDOM float4 curand_uniform4(curandStatePhilox4_32_10_t *s)
{
    float4 v;
    v.x = curand_uniform(s), v.y = curand_uniform(s), v.z = curand_uniform(s), v.w = curand_uniform(s);
    return v;
}

VGPU_RANDOM double2 curand_uniform2_double(curandStatePhilox4_32_10_t *s)
{
    double2 v;
    v.x = curand_uniform_double(s), v.y = curand_uniform_double(s);
    return v;
}

VGPU_RANDOM float4 curand_normal4(curandStatePhilox4_32_10_t *s)
{
    float2 v = curand_normal2(s), w = curand_normal2(s);
    return make_float4(v.x, v.y, w.x, w.y);
}

VGPU_RANDOM float4 curand_log_normal4(curandStatePhilox4_32_10_t *s, float mean, float deviation)
{
    float2 v = curand_log_normal2(s, mean, deviation), w = curand_log_normal2(s, mean, deviation);
    return make_float4(v.x, v.y, w.x, w.y);
}

VGPU_RANDOM uint4 curand_poisson4(curandStatePhilox4_32_10_t *s, double mean)
{
    uint4 v;
    v.x = curand_poisson(s, mean), v.y = curand_poisson(s, mean);
    v.z = curand_poisson(s, mean), v.w = curand_poisson(s, mean);
    return v;
}

#endif
