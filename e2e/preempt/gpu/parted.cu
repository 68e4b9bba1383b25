// Kernels whose threads leave their barriers one by one, within warps too: what the
// assembler makes of such barriers is where a form is soonest wrong on a real GPU.

__device__ static unsigned mix(unsigned h) {
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    return h ^ h >> 12;
}

// Each thread leaves after its own number of rounds of two barriers.
extern "C" __global__ void rounds(unsigned *out) {
    __shared__ unsigned tile[128];
    unsigned t = threadIdx.x, b = blockIdx.x + 7 * blockIdx.y, h = mix(b * 2654435761u ^ t * 40503u);
    unsigned n = b % 3 == 0 ? h % 6 : b % 3 == 1 ? (t / 32 + h % 2) % 5 : 3;
    tile[t] = h;
    asm volatile("barrier.sync 0;" ::: "memory");
    unsigned v = h;
    for (unsigned i = 0; i < n; i++) {
        v = v * 31 + tile[(t + 37) % 128];
        asm volatile("barrier.sync 0;" ::: "memory");
        tile[t] = v;
        asm volatile("barrier.sync 0;" ::: "memory");
    }
    out[(blockIdx.y * gridDim.x + blockIdx.x) * 128 + t] = v;
}

// Some threads return above the barriers, a part of a warp in most blocks, all in some.
extern "C" __global__ void returns(unsigned *out) {
    __shared__ unsigned tile[128];
    unsigned t = threadIdx.x, b = blockIdx.y * gridDim.x + blockIdx.x, n = b * 37 % 160;
    out[b * 128 + t] = 1;
    tile[t] = b * 1000 + t;
    __syncthreads();
    if (t >= n)
        return;
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        v += tile[(t * 5 + i) % 128];
        __syncthreads();
        tile[t] = v;
        __syncthreads();
    }
    out[b * 128 + t] = v;
}

// Returns between barriers that stand one after another, in two places.
extern "C" __global__ void stairs(unsigned *out) {
    __shared__ unsigned tile[128];
    unsigned t = threadIdx.x, b = blockIdx.y * gridDim.x + blockIdx.x, step = mix(b * 128 + t) % 4;
    unsigned *mine = &out[b * 128 + t];
    tile[t] = t + b;
    __syncthreads();
    *mine = tile[127 - t];
    if (step == 0)
        return;
    __syncthreads();
    tile[t] += 1;
    __syncthreads();
    *mine += tile[(t + 1) % 128];
    if (step == 1)
        return;
    __syncthreads();
    tile[t] *= 3;
    if (step == 2)
        return;
    __syncthreads();
    *mine += tile[(t + 64) % 128];
}
