// Barriers of a block beyond the plain one, and of memory.

// Barriers that also count and combine a predicate over the block.
extern "C" __global__ void barrier_votes(const unsigned *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = in[i];
    int count = __syncthreads_count(x & 1);
    int all = __syncthreads_and(x % 100 != 7) != 0;
    int any = __syncthreads_or(x % 100 == 8) != 0;
    out[i] = count * 4 + all * 2 + any;
}

// Two warps, one producing and one consuming through shared memory. Two named
// barriers say that the buffer is full, and that it is empty: who must not wait
// only arrives.
extern "C" __global__ void barrier_named(unsigned *out, unsigned seed, int rounds) {
    __shared__ volatile unsigned buffer[32];
    int lane = threadIdx.x % 32;
    unsigned sum = 0;
    if (threadIdx.x < 32) {
        unsigned x = seed + blockIdx.x * 32 + lane;
        for (int round = 0; round < rounds; round++) {
            x = x * 1664525u + 1013904223u;
            buffer[lane] = x;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            __nanosleep(1);
            asm volatile("bar.sync 2, 64;" ::: "memory");
        }
        sum = x;
    } else {
        for (int round = 0; round < rounds; round++) {
            asm volatile("barrier.sync 1, 64;" ::: "memory");
            sum = sum * 31 + buffer[31 - lane];
            asm volatile("barrier.arrive 2, 64;" ::: "memory");
        }
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}

// A sum over all blocks in one launch: each block publishes its own, and the one
// that finishes last adds them up. ticket is zero, and is again afterwards.
extern "C" __global__ void barrier_last_block(const unsigned *in, volatile unsigned *partial, unsigned *sum,
                                              unsigned *ticket, int n) {
    __shared__ unsigned local;
    __shared__ bool last;
    if (threadIdx.x == 0)
        local = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&local, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = local;
        __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        local = 0;
    }
    __syncthreads();
    if (!last)
        return;
    for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x)
        atomicAdd(&local, partial[b]);
    __syncthreads();
    if (threadIdx.x == 0)
        *sum = local;
}
