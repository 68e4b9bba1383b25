// Atomic operations of 32 and 64 bits on global memory, each of which leaves the
// same memory in whatever order the threads come.

struct Words {
    unsigned add, sub, min, max, and_, or_, xor_, inc, cas, exch;
};

struct Longs {
    unsigned long long add, min, max, and_, or_, xor_, cas, exch;
    long long smin, smax;
};

extern "C" __global__ void atomics32(const unsigned *in, Words *r, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = in[i];
    atomicAdd(&r->add, x);
    atomicSub(&r->sub, x);
    atomicMin(&r->min, x);
    atomicMax(&r->max, x);
    atomicAnd(&r->and_, x | 0x0f0f0000);
    atomicOr(&r->or_, x & 0xf0f0);
    atomicXor(&r->xor_, x);
    atomicInc(&r->inc, 999);
    atomicExch(&r->exch, 77);
    // A step by compare and swap: retried until no one came between. Few blocks
    // take part, since a crowd makes little progress.
    if (blockIdx.x % 16 != 0)
        return;
    unsigned seen = r->cas, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&r->cas, assumed, assumed * 5 + 1);
    } while (seen != assumed);
}

extern "C" __global__ void atomics64(const unsigned long long *in, Longs *r, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long x = in[i];
    atomicAdd(&r->add, x);
    atomicMin(&r->min, x);
    atomicMax(&r->max, x);
    atomicMin(&r->smin, (long long)x);
    atomicMax(&r->smax, (long long)x);
    atomicAnd(&r->and_, x | 0x0f0f000000000000);
    atomicOr(&r->or_, x & 0xf0f0f0f0f0);
    atomicXor(&r->xor_, x);
    atomicExch(&r->exch, 1ull << 63 | 5);
    if (blockIdx.x % 16 != 0)
        return;
    unsigned long long seen = r->cas, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&r->cas, assumed, assumed + (x & 0xffff));
    } while (seen != assumed);
}

// What an atomic returns: each thread takes the next slot of its owner's counter.
// Who gets which slot is open, but not how many owners hand out slot k.
extern "C" __global__ void atomic_slots(const unsigned *owner, unsigned *counters, unsigned *seen, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned slot = atomicAdd(&counters[owner[i]], 1);
    atomicAdd(&seen[slot], 1);
}
