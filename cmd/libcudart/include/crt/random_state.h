#ifndef VGPU_CRT_RANDOM_STATE_H
#define VGPU_CRT_RANDOM_STATE_H

/* What the generators of curand_kernel.h share. */

#define VGPU_RANDOM static __host__ __device__ __inline__
#define VGPU_LEADING_ZEROS(n) __builtin_clzll(n)

/* The second of two normal numbers, for the next call. */
typedef struct curandNormal {
    bool has_float, has_double;
    float f;
    double d;
} curandNormal;

/* Spreads a seed over a state (G. L. Steele and others, Fast Splittable Pseudorandom Number Generators,
 * 2014). */
VGPU_RANDOM unsigned long long vgpu_splitmix(unsigned long long *at)
{
    unsigned long long z = *at += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

#endif
