// Stable least-significant-digit radix sort of keys with values, four bits a
// pass: count each block's digits, turn the counts into offsets, scatter. The
// counts lie digit by digit, each with one entry a block, so that their exclusive
// prefix sum is where a block's first key of that digit goes.
constexpr int THREADS = 256;
constexpr int DIGITS = 16;

__device__ unsigned digit(unsigned key, int shift) { return key >> shift & (DIGITS - 1); }

extern "C" __global__ void radix_count(const unsigned *keys, unsigned *counts, int shift, int n) {
    __shared__ unsigned local[DIGITS];
    if (threadIdx.x < DIGITS)
        local[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(&local[digit(keys[i], shift)], 1);
    __syncthreads();
    if (threadIdx.x < DIGITS)
        counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}

// One block: replaces m counts by their exclusive prefix sum.
extern "C" __global__ void radix_offsets(unsigned *counts, int m) {
    __shared__ unsigned sums[THREADS];
    unsigned carried = 0;
    for (int base = 0; base < m; base += THREADS) {
        int i = base + threadIdx.x;
        unsigned value = i < m ? counts[i] : 0, sum = value;
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int distance = 1; distance < THREADS; distance *= 2) {
            unsigned before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
            __syncthreads();
            sum += before;
            sums[threadIdx.x] = sum;
            __syncthreads();
        }
        if (i < m)
            counts[i] = carried + sum - value;
        carried += sums[THREADS - 1];
        __syncthreads();
    }
}

// A key's place is its block's offset for the digit, plus how many keys of that
// digit come before it in the block: in earlier warps, and in lower lanes of its
// own, which __match_any_sync tells.
extern "C" __global__ void radix_scatter(const unsigned *keys, const unsigned *values, const unsigned *offsets,
                                         unsigned *keys_out, unsigned *values_out, int shift, int n) {
    __shared__ unsigned warp_counts[THREADS / 32][DIGITS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int k = threadIdx.x; k < THREADS / 32 * DIGITS; k += THREADS)
        warp_counts[k / DIGITS][k % DIGITS] = 0;
    __syncthreads();

    int i = blockIdx.x * THREADS + threadIdx.x;
    bool valid = i < n;
    unsigned key = valid ? keys[i] : 0;
    unsigned d = valid ? digit(key, shift) : DIGITS;  // DIGITS: matches none of the valid
    unsigned peers = __match_any_sync(0xffffffff, d);
    unsigned rank = __popc(peers & ((1u << lane) - 1));
    if (valid && rank == 0)
        warp_counts[warp][d] = __popc(peers);
    __syncthreads();

    if (valid) {
        unsigned place = offsets[d * gridDim.x + blockIdx.x] + rank;
        for (int w = 0; w < warp; w++)
            place += warp_counts[w][d];
        keys_out[place] = key;
        values_out[place] = values[i];
    }
}
