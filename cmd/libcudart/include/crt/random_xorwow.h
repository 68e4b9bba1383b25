#ifndef VGPU_CRT_RANDOM_XORWOW_H
#define VGPU_CRT_RANDOM_XORWOW_H

/* G. Marsaglia, Xorshift RNGs, 2003: xorwow. Five words follow each other linearly over GF(2), and a
 * sixth counts. */

#include "random_state.h"

typedef struct curandStateXORWOW {
    unsigned x[5], count;
    curandNormal normal;
} curandStateXORWOW_t;
typedef curandStateXORWOW_t curandState_t;
typedef curandStateXORWOW_t curandState;

VGPU_RANDOM void vgpu_xorwow_step(unsigned x[5])
{
    unsigned t = x[0] ^ x[0] >> 2;
    for (int i = 0; i < 4; i++)
        x[i] = x[i + 1];
    x[4] ^= x[4] << 4 ^ t ^ t << 1;
}

/* A step is a matrix T. Its powers are polynomials in T modulo its characteristic polynomial, of
 * degree 160 (H. Haramoto and others, Efficient Jump Ahead for F2-Linear Random Number Generators,
 * 2008). Bit i of the words is the coefficient of T to the power of i. */
typedef struct vgpu_polynomial {
    unsigned w[5];
} vgpu_polynomial;

VGPU_RANDOM void vgpu_polynomial_shift(vgpu_polynomial *p)
{
    const unsigned characteristic[5] = {0x00060001, 0x08610030, 0x00062121, 0x0f3c0035, 0x00000f0e};
    unsigned carry = 0u - (p->w[4] >> 31);
    for (int i = 4; i > 0; i--)
        p->w[i] = (p->w[i] << 1 | p->w[i - 1] >> 31) ^ (characteristic[i] & carry);
    p->w[0] = p->w[0] << 1 ^ (characteristic[0] & carry);
}

VGPU_RANDOM vgpu_polynomial vgpu_polynomial_product(const vgpu_polynomial &a, const vgpu_polynomial &b)
{
    vgpu_polynomial r = {{0, 0, 0, 0, 0}};
    for (int i = 159; i >= 0; i--) {
        unsigned take = 0u - (b.w[i / 32] >> i % 32 & 1);
        vgpu_polynomial_shift(&r);
        for (int j = 0; j < 5; j++)
            r.w[j] ^= a.w[j] & take;
    }
    return r;
}

/* Sets x to base(T) to the power of n, times x. */
VGPU_RANDOM void vgpu_xorwow_jump(unsigned x[5], const vgpu_polynomial &base, unsigned long long n)
{
    vgpu_polynomial p = {{1, 0, 0, 0, 0}};
    unsigned sum[5] = {0, 0, 0, 0, 0};
    if (n == 0)
        return;
    for (int bit = 63 - VGPU_LEADING_ZEROS(n); bit >= 0; bit--) {
        p = vgpu_polynomial_product(p, p);
        if (n >> bit & 1)
            p = vgpu_polynomial_product(p, base);
    }
    for (int i = 0; i < 160; i++) {
        unsigned take = 0u - (p.w[i / 32] >> i % 32 & 1);
        for (int j = 0; j < 5; j++)
            sum[j] ^= x[j] & take;
        vgpu_xorwow_step(x);
    }
    for (int j = 0; j < 5; j++)
        x[j] = sum[j];
}

VGPU_RANDOM unsigned curand(curandStateXORWOW_t *s)
{
    vgpu_xorwow_step(s->x);
    s->count += 362437;
    return s->x[4] + s->count;
}

VGPU_RANDOM void skipahead(unsigned long long n, curandStateXORWOW_t *s)
{
    const vgpu_polynomial one = {{2, 0, 0, 0, 0}};
    s->count += 362437 * (unsigned)n;
    if (n > 256)
        vgpu_xorwow_jump(s->x, one, n);
    else
        for (; n > 0; n--)
            vgpu_xorwow_step(s->x);
}

/* Sequences are 2^67 numbers apart, over which the count comes round. */
VGPU_RANDOM void skipahead_sequence(unsigned long long n, curandStateXORWOW_t *s)
{
    const vgpu_polynomial sequence = {{0x26294934, 0x77bbc248, 0x1a87dad0, 0x930052d4, 0x947e6dd2}};
    vgpu_xorwow_jump(s->x, sequence, n);
}

VGPU_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStateXORWOW_t *s)
{
    unsigned long long at = seed;
    for (int i = 0; i < 5; i++)
        s->x[i] = (unsigned)vgpu_splitmix(&at) | (i == 0);
    s->count = (unsigned)vgpu_splitmix(&at);
    s->normal = curandNormal();
    skipahead_sequence(subsequence, s);
    skipahead(offset, s);
}

#endif
