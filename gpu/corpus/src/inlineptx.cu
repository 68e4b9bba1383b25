// PTX written by hand in the middle of C, as libraries do: carry chains, scopes
// that declare their own registers under the same names, predicates taken and
// negated, instructions that the compiler seldom chooses.

#define PUT2(instruction)                                                      \
    do {                                                                       \
        unsigned value;                                                        \
        asm(instruction : "=r"(value) : "r"(a), "r"(b));                       \
        out[row++ * n + i] = value;                                            \
    } while (0)

#define PUT3(instruction, third)                                               \
    do {                                                                       \
        unsigned value;                                                        \
        asm(instruction : "=r"(value) : "r"(a), "r"(b), "r"(third));           \
        out[row++ * n + i] = value;                                            \
    } while (0)

// pairs holds a and b of each thread, one after the other.
extern "C" __global__ void inlineptx(const unsigned *pairs, unsigned *out, unsigned *sum, int *most, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned a, b;
    // The address is of the pair's end.
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2+-8];" : "=r"(a), "=r"(b) : "l"(pairs + 2 * i + 2));
    int row = 0;

    // A 128-bit sum, a 64-bit difference, a 64-bit product with an addend.
    unsigned w0, w1, w2, w3;
    asm("add.cc.u32 %0, %4, %5;\n\t"
        "addc.cc.u32 %1, %5, %4;\n\t"
        "addc.cc.u32 %2, %6, %5;\n\t"
        "addc.u32 %3, %4, %7;"
        : "=&r"(w0), "=&r"(w1), "=&r"(w2), "=&r"(w3)
        : "r"(a), "r"(b), "r"(~a), "r"(~b));
    out[row++ * n + i] = w0;
    out[row++ * n + i] = w1;
    out[row++ * n + i] = w2;
    out[row++ * n + i] = w3;
    asm("sub.cc.u32 %0, %2, %3;\n\t"
        "subc.u32 %1, %3, %2;"
        : "=&r"(w0), "=&r"(w1)
        : "r"(a), "r"(b));
    out[row++ * n + i] = w0;
    out[row++ * n + i] = w1;
    asm("mad.lo.cc.u32 %0, %2, %3, %2;\n\t"
        "madc.hi.u32 %1, %2, %3, %3;"
        : "=&r"(w0), "=&r"(w1)
        : "r"(a), "r"(b));
    out[row++ * n + i] = w0;
    out[row++ * n + i] = w1;

    PUT3("lop3.b32 %0, %1, %2, %3, 0xca;", a >> 3);
    PUT3("bfe.u32 %0, %1, %3, 7;", b & 31);
    PUT3("bfe.s32 %0, %1, %3, 9;", b & 31);
    PUT2("bfi.b32 %0, %1, %2, 5, 11;");
    PUT2("bfind.u32 %0, %1;");
    PUT2("bfind.s32 %0, %1;");
    PUT2("bfind.shiftamt.u32 %0, %1;");
    PUT3("bmsk.clamp.b32 %0, %3, 6;", b & 31);
    PUT3("szext.clamp.s32 %0, %1, %3;", (b & 15) + 1);
    PUT3("slct.u32.s32 %0, %1, %2, %3;", a ^ b);
    PUT2("set.lt.u32.s32 %0, %1, %2;");
    PUT3("cnot.b32 %0, %3;", b & 1);
    PUT3("prmt.b32.f4e %0, %1, %2, %3;", b & 3);
    PUT3("prmt.b32.b4e %0, %1, %2, %3;", b & 3);
    PUT3("prmt.b32.rc8 %0, %1, %2, %3;", b & 3);
    PUT3("prmt.b32.ecl %0, %1, %2, %3;", b & 3);
    PUT3("prmt.b32.ecr %0, %1, %2, %3;", b & 3);
    PUT3("prmt.b32.rc16 %0, %1, %2, %3;", b & 3);
    PUT2("prmt.b32 %0, %1, %2, 0xba98;");  // signs of a's bytes
    PUT2("add.sat.s32 %0, %1, %2;");
    PUT2("sub.sat.s32 %0, %1, %2;");
    PUT2("mad.hi.s32 %0, %1, %2, %1;");
    PUT2("mul24.hi.u32 %0, %1, %2;");
    PUT2("mad24.lo.s32 %0, %1, %2, %2;");
    PUT2("cvt.sat.s8.s32 %0, %1;");
    PUT2("cvt.sat.u16.s32 %0, %1;");
    PUT2("dp2a.lo.s32.u32 %0, %1, %2, %1;");
    PUT2("dp2a.hi.u32.s32 %0, %1, %2, %1;");

    // The same names in scopes beside and within one another, a predicate and its
    // negation, a comment of either kind.
    PUT2("{\n\t"
         ".reg .pred p; .reg .u32 t;\n\t"
         "setp.hi.u32 p, %1, %2; /* unsigned\n\t   greater */\n\t"
         "@p sub.u32 t, %1, %2;\n\t"
         "@!p sub.u32 t, %2, %1;  // else\n\t"
         "{ .reg .u32 t; shr.u32 t, %1, 4; xor.b32 t, t, %2; mov.b32 %0, t; }\n\t"
         "add.u32 %0, %0, t;\n\t"
         "}");
    // Predicates combined as they are set, both results used.
    PUT2("{ .reg .pred p, q, r; .reg .u32 t;\n\t"
         "setp.ne.u32 r, %2, 0;\n\t"
         "setp.lt.and.s32 p|q, %1, %2, !r;\n\t"
         "selp.u32 t, 1, 0, p; selp.u32 %0, 2, 0, q;\n\t"
         "or.b32 %0, %0, t; }");
    // A loop of its own, with a label.
    PUT2("{ .reg .pred p; .reg .u32 x, y, t;\n\t"
         "mov.u32 x, %1; or.b32 y, %2, 1;\n"
         "gcd: setp.eq.u32 p, y, 0;\n\t"
         "@p bra done;\n\t"
         "rem.u32 t, x, y; mov.u32 x, y; mov.u32 y, t;\n\t"
         "bra gcd;\n"
         "done: mov.u32 %0, x; }");
    // Floating point's classes.
    PUT2("{ .reg .pred p; .reg .f32 f; .reg .u32 t;\n\t"
         "mov.b32 f, %1;\n\t"
         "testp.finite.f32 p, f; selp.u32 %0, 1, 0, p;\n\t"
         "testp.normal.f32 p, f; selp.u32 t, 2, 0, p; or.b32 %0, %0, t;\n\t"
         "testp.subnormal.f32 p, f; selp.u32 t, 4, 0, p; or.b32 %0, %0, t;\n\t"
         "testp.notanumber.f32 p, f; selp.u32 t, 8, 0, p; or.b32 %0, %0, t; }");

    // Reductions whose result no one wants back.
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(sum), "r"(a) : "memory");
    asm volatile("red.global.max.s32 [%0], %1;" ::"l"(most), "r"(b) : "memory");
}
