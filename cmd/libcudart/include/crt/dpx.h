#ifndef VGPU_CRT_DPX_H
#define VGPU_CRT_DPX_H

/* Functions for dynamic programming (CUDA C++ Programming Guide, DPX): the greatest and the least of
 * three numbers or of a sum and a number, for words and for their halves. Those with relu are at
 * least 0. */

#define VGPU_BOTH static __host__ __device__ __inline__ __attribute__((always_inline))

VGPU_BOTH int vgpu_max(int a, int b) { return a < b ? b : a; }
VGPU_BOTH int vgpu_min(int a, int b) { return b < a ? b : a; }
VGPU_BOTH unsigned vgpu_max(unsigned a, unsigned b) { return a < b ? b : a; }
VGPU_BOTH unsigned vgpu_min(unsigned a, unsigned b) { return b < a ? b : a; }

/* One function for words, and one for halves by means of it. Sums wrap. */
#define VGPU_WORDS(name, T, form, R, three, expression)                                            \
    VGPU_BOTH R name##_##form(T a, T b three) { return expression; }
#define VGPU_NONE
#define VGPU_THIRD(T) , T c
#define VGPU_HALVES2(name, H, form, expression)                                                    \
    VGPU_BOTH unsigned name##_##form(unsigned x, unsigned y)                                       \
    {                                                                                              \
        unsigned r = 0;                                                                            \
        for (int shift = 0; shift < 32; shift += 16) {                                             \
            H a = (H)(x >> shift), b = (H)(y >> shift);                                            \
            r |= (unsigned)(unsigned short)(expression) << shift;                                  \
        }                                                                                          \
        return r;                                                                                  \
    }
#define VGPU_HALVES3(name, H, form, expression)                                                    \
    VGPU_BOTH unsigned name##_##form(unsigned x, unsigned y, unsigned z)                           \
    {                                                                                              \
        unsigned r = 0;                                                                            \
        for (int shift = 0; shift < 32; shift += 16) {                                             \
            H a = (H)(x >> shift), b = (H)(y >> shift), c = (H)(z >> shift);                       \
            r |= (unsigned)(unsigned short)(expression) << shift;                                  \
        }                                                                                          \
        return r;                                                                                  \
    }

#define VGPU_OF_THREE(most)                                                                        \
    VGPU_WORDS(__vi##most##3, int, s32, int, VGPU_THIRD(int), vgpu_##most(vgpu_##most(a, b), c))   \
    VGPU_WORDS(__vi##most##3, int, s32_relu, int, VGPU_THIRD(int), vgpu_max(vgpu_##most(vgpu_##most(a, b), c), 0)) \
    VGPU_WORDS(__vi##most##3, unsigned, u32, unsigned, VGPU_THIRD(unsigned), vgpu_##most(vgpu_##most(a, b), c)) \
    VGPU_HALVES3(__vi##most##3, short, s16x2, vgpu_##most(vgpu_##most((int)a, (int)b), (int)c))    \
    VGPU_HALVES3(__vi##most##3, short, s16x2_relu, vgpu_max(vgpu_##most(vgpu_##most((int)a, (int)b), (int)c), 0)) \
    VGPU_HALVES3(__vi##most##3, unsigned short, u16x2, vgpu_##most(vgpu_##most((int)a, (int)b), (int)c)) \
    VGPU_WORDS(__viadd##most, int, s32, int, VGPU_THIRD(int), vgpu_##most((int)((unsigned)a + (unsigned)b), c)) \
    VGPU_WORDS(__viadd##most, int, s32_relu, int, VGPU_THIRD(int), vgpu_max(vgpu_##most((int)((unsigned)a + (unsigned)b), c), 0)) \
    VGPU_WORDS(__viadd##most, unsigned, u32, unsigned, VGPU_THIRD(unsigned), vgpu_##most(a + b, c)) \
    VGPU_HALVES3(__viadd##most, short, s16x2, vgpu_##most((int)(short)(a + b), (int)c))            \
    VGPU_HALVES3(__viadd##most, short, s16x2_relu, vgpu_max(vgpu_##most((int)(short)(a + b), (int)c), 0)) \
    VGPU_HALVES3(__viadd##most, unsigned short, u16x2, vgpu_##most((int)(unsigned short)(a + b), (int)c)) \
    VGPU_WORDS(__vi##most, int, s32_relu, int, VGPU_NONE, vgpu_max(vgpu_##most(a, b), 0))          \
    VGPU_HALVES2(__vi##most, short, s16x2_relu, vgpu_max(vgpu_##most((int)a, (int)b), 0))
VGPU_OF_THREE(max)
VGPU_OF_THREE(min)
#undef VGPU_OF_THREE

/* Which one it was: first is true if it is a, or both are equal. */
#define VGPU_WHICH(most, op, T, H, word, half)                                                     \
    VGPU_BOTH T __vib##most##_##word(T a, T b, bool *first)                                        \
    {                                                                                              \
        *first = a op b;                                                                           \
        return *first ? a : b;                                                                     \
    }                                                                                              \
    VGPU_BOTH unsigned __vib##most##_##half(unsigned x, unsigned y, bool *high, bool *low)         \
    {                                                                                              \
        *high = (H)(x >> 16) op(H)(y >> 16);                                                       \
        *low = (H)x op(H) y;                                                                       \
        return ((*high ? x : y) & 0xffff0000u) | ((*low ? x : y) & 0xffffu);                       \
    }
VGPU_WHICH(max, >=, int, short, s32, s16x2)
VGPU_WHICH(max, >=, unsigned, unsigned short, u32, u16x2)
VGPU_WHICH(min, <=, int, short, s32, s16x2)
VGPU_WHICH(min, <=, unsigned, unsigned short, u32, u16x2)
#undef VGPU_WHICH

#undef VGPU_WORDS
#undef VGPU_NONE
#undef VGPU_THIRD
#undef VGPU_HALVES2
#undef VGPU_HALVES3
#undef VGPU_BOTH

#endif
