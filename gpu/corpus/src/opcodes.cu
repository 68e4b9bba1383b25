// An interpreter of a little machine: a dense switch in a loop, which the
// compiler may turn into an indexed branch, whose lanes go different ways.
enum Opcode { ADD, SUB, MUL, AND, OR, XOR, SHL, SHR, ROT, NOT, SWAP, MIN, MAX, SKIP, POPC, HALT };

extern "C" __global__ void opcodes(const unsigned char *code, int length, const unsigned *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned a = in[i], b = i * 2654435761u;
    bool halted = false;
    for (int pc = i % length, steps = 0; steps < 3 * length && !halted; steps++) {
        switch (code[pc]) {
        case ADD: a += b; break;
        case SUB: a -= b ^ 0x55; break;
        case MUL: a *= b | 1; break;
        case AND: b &= a | 0xff00ff; break;
        case OR: b |= a >> 3; break;
        case XOR: a ^= b << 1; break;
        case SHL: a <<= b & 7; break;
        case SHR: b >>= a & 3; break;
        case ROT: a = a << 11 | a >> 21; break;
        case NOT: b = ~b; break;
        case SWAP: { unsigned t = a; a = b; b = t; } break;
        case MIN: a = min(a, b) + 3; break;
        case MAX: b = max(a, b) - 5; break;
        case SKIP: pc += a & 3; break;
        case POPC: a += __popc(b) * 0x01010101; break;
        case HALT: halted = (a & 31) == 0; break;
        }
        pc++;
        if (pc >= length)
            pc -= length;
    }
    out[i] = a ^ b;
}

// An indexed branch as PTX has it, which the compiler does not emit for the
// switch above on every target.
extern "C" __global__ void branch_table(const unsigned *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = in[i], y;
    asm volatile("{\n\t"
                 "targets: .branchtargets add_seven, square, invert, halve;\n\t"
                 "brx.idx %2, targets;\n"
                 "add_seven: add.u32 %0, %1, 7;\n\t"
                 "bra done;\n"
                 "square: mul.lo.u32 %0, %1, %1;\n\t"
                 "bra done;\n"
                 "invert: not.b32 %0, %1;\n\t"
                 "bra done;\n"
                 "halve: shr.u32 %0, %1, 1;\n"
                 "done:\n\t"
                 "}"
                 : "=&r"(y)
                 : "r"(x), "r"(x % 4));
    out[i] = y;
}
