#ifndef VGPU_CRT_RANDOM_MRG_H
#define VGPU_CRT_RANDOM_MRG_H

/* P. L'Ecuyer, Good Parameters and Implementations for Combined Multiple Recursive Random Number
 * Generators, 1999: MRG32k3a. Skips are powers of the recurrences' matrices. */

#include "random_state.h"

typedef struct curandStateMRG32k3a {
    unsigned a[3], b[3]; // the oldest first
    curandNormal normal;
} curandStateMRG32k3a_t;

#define VGPU_MRG_A 4294967087u
#define VGPU_MRG_B 4294944443u

typedef struct vgpu_mrg_matrix {
    unsigned m[3][3];
} vgpu_mrg_matrix;

VGPU_RANDOM vgpu_mrg_matrix vgpu_mrg_product(const vgpu_mrg_matrix &p, const vgpu_mrg_matrix &q, unsigned long long modulus)
{
    vgpu_mrg_matrix r;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            unsigned long long sum = 0;
            for (int k = 0; k < 3; k++)
                sum = (sum + (unsigned long long)p.m[i][k] * q.m[k][j] % modulus) % modulus;
            r.m[i][j] = (unsigned)sum;
        }
    return r;
}

/* Goes n << doublings numbers on in one of the two recurrences. */
VGPU_RANDOM void vgpu_mrg_skip(unsigned x[3], vgpu_mrg_matrix step, unsigned long long modulus, unsigned long long n,
    int doublings)
{
    if (n == 0)
        return;
    for (; doublings > 0; doublings--)
        step = vgpu_mrg_product(step, step, modulus);
    for (; n > 0; n >>= 1) {
        if (n & 1) {
            unsigned y[3];
            for (int i = 0; i < 3; i++) {
                unsigned long long sum = 0;
                for (int k = 0; k < 3; k++)
                    sum = (sum + (unsigned long long)step.m[i][k] * x[k] % modulus) % modulus;
                y[i] = (unsigned)sum;
            }
            for (int i = 0; i < 3; i++)
                x[i] = y[i];
        }
        step = vgpu_mrg_product(step, step, modulus);
    }
}

VGPU_RANDOM void vgpu_mrg_skip_both(curandStateMRG32k3a_t *s, unsigned long long n, int doublings)
{
    const vgpu_mrg_matrix a = {{{0, 1, 0}, {0, 0, 1}, {VGPU_MRG_A - 810728u, 1403580u, 0}}};
    const vgpu_mrg_matrix b = {{{0, 1, 0}, {0, 0, 1}, {VGPU_MRG_B - 1370589u, 0, 527612u}}};
    vgpu_mrg_skip(s->a, a, VGPU_MRG_A, n, doublings);
    vgpu_mrg_skip(s->b, b, VGPU_MRG_B, n, doublings);
}

/* The generator's own numbers, from 1 to VGPU_MRG_A. */
VGPU_RANDOM unsigned vgpu_mrg_next(curandStateMRG32k3a_t *s)
{
    unsigned long long a = (1403580ull * s->a[1] + (unsigned long long)(VGPU_MRG_A - 810728u) * s->a[0] % VGPU_MRG_A) % VGPU_MRG_A;
    unsigned long long b = (527612ull * s->b[2] + (unsigned long long)(VGPU_MRG_B - 1370589u) * s->b[0] % VGPU_MRG_B) % VGPU_MRG_B;
    s->a[0] = s->a[1], s->a[1] = s->a[2], s->a[2] = (unsigned)a;
    s->b[0] = s->b[1], s->b[1] = s->b[2], s->b[2] = (unsigned)b;
    return (unsigned)(a > b ? a - b : a + VGPU_MRG_A - b);
}

/* Stretched to all of 32 bits. */
VGPU_RANDOM unsigned curand(curandStateMRG32k3a_t *s)
{
    return (unsigned)(((unsigned long long)(vgpu_mrg_next(s) - 1) << 32) / VGPU_MRG_A);
}

VGPU_RANDOM void skipahead(unsigned long long n, curandStateMRG32k3a_t *s) { vgpu_mrg_skip_both(s, n, 0); }
VGPU_RANDOM void skipahead_subsequence(unsigned long long n, curandStateMRG32k3a_t *s) { vgpu_mrg_skip_both(s, n, 76); }
VGPU_RANDOM void skipahead_sequence(unsigned long long n, curandStateMRG32k3a_t *s) { vgpu_mrg_skip_both(s, n, 127); }

VGPU_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStateMRG32k3a_t *s)
{
    unsigned long long at = seed;
    for (int i = 0; i < 3; i++) {
        s->a[i] = (unsigned)(vgpu_splitmix(&at) % (VGPU_MRG_A - 1)) + 1;
        s->b[i] = (unsigned)(vgpu_splitmix(&at) % (VGPU_MRG_B - 1)) + 1;
    }
    s->normal = curandNormal();
    skipahead_subsequence(subsequence, s);
    skipahead(offset, s);
}

#undef VGPU_MRG_A
#undef VGPU_MRG_B

#endif
