#ifndef VGPU_CRT_RANDOM_PHILOX_H
#define VGPU_CRT_RANDOM_PHILOX_H

/* J. K. Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3, 2011: Philox4x32-10. The seed is
 * the key; the counter's upper half is the sequence, its lower half counts blocks of four numbers. */

#include "random_state.h"

typedef struct curandStatePhilox4_32_10 {
    uint4 counter, block; // block is made of counter
    uint2 key;
    unsigned used; // numbers of block
    curandNormal normal;
} curandStatePhilox4_32_10_t;

VGPU_RANDOM uint4 vgpu_philox(uint4 c, uint2 key)
{
    for (int round = 0; round < 10; round++) {
        unsigned long long a = 0xd2511f53ull * c.x, b = 0xcd9e8d57ull * c.z;
        c = make_uint4((unsigned)(b >> 32) ^ c.y ^ key.x, (unsigned)b, (unsigned)(a >> 32) ^ c.w ^ key.y, (unsigned)a);
        key.x += 0x9e3779b9;
        key.y += 0xbb67ae85;
    }
    return c;
}

VGPU_RANDOM void vgpu_philox_add(curandStatePhilox4_32_10_t *s, unsigned long long blocks, unsigned long long sequences)
{
    unsigned long long low = s->counter.x | (unsigned long long)s->counter.y << 32;
    unsigned long long high = s->counter.z | (unsigned long long)s->counter.w << 32;
    high += sequences + (low + blocks < low);
    low += blocks;
    s->counter = make_uint4((unsigned)low, (unsigned)(low >> 32), (unsigned)high, (unsigned)(high >> 32));
    s->block = vgpu_philox(s->counter, s->key);
}

VGPU_RANDOM void skipahead(unsigned long long n, curandStatePhilox4_32_10_t *s)
{
    s->used += (unsigned)(n & 3);
    n = (n >> 2) + (s->used >> 2);
    s->used &= 3;
    vgpu_philox_add(s, n, 0);
}

VGPU_RANDOM void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t *s)
{
    vgpu_philox_add(s, 0, n);
}

VGPU_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
    curandStatePhilox4_32_10_t *s)
{
    s->counter = make_uint4(0, 0, 0, 0);
    s->key = make_uint2((unsigned)seed, (unsigned)(seed >> 32));
    s->used = 0;
    s->normal = curandNormal();
    vgpu_philox_add(s, 0, subsequence);
    skipahead(offset, s);
}

VGPU_RANDOM unsigned curand(curandStatePhilox4_32_10_t *s)
{
    const uint4 b = s->block;
    unsigned v = s->used == 0 ? b.x : s->used == 1 ? b.y : s->used == 2 ? b.z : b.w;
    if (++s->used == 4) {
        s->used = 0;
        vgpu_philox_add(s, 1, 0);
    }
    return v;
}

VGPU_RANDOM uint4 curand4(curandStatePhilox4_32_10_t *s)
{
    uint4 v;
    v.x = curand(s), v.y = curand(s), v.z = curand(s), v.w = curand(s);
    return v;
}

#endif
