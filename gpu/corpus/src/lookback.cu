// Inclusive prefix sum in one pass with decoupled look-back (Merrill and Garland,
// "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). Blocks take
// their tiles in the order in which they start, publish a tile's own sum, then
// walk back over the tiles before until one knows its whole prefix. So a block
// waits for blocks that started earlier: this needs them to make progress.
constexpr int THREADS = 128;

// A tile's state is one 64-bit word, so that sum and flag change together.
constexpr unsigned long long PARTIAL = 1ull << 32;  // the low half is the tile's own sum
constexpr unsigned long long PREFIX = 2ull << 32;   // the low half is the sum up to its end

__device__ unsigned inclusive(unsigned value, unsigned *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        unsigned before = threadIdx.x >= distance ? shared[threadIdx.x - distance] : 0;
        __syncthreads();
        value += before;
        shared[threadIdx.x] = value;
        __syncthreads();
    }
    return value;
}

// states holds one zeroed word a tile, ticket is zero.
extern "C" __global__ void lookback(const unsigned *in, unsigned *out, volatile unsigned long long *states,
                                    unsigned *ticket, int n) {
    __shared__ unsigned sums[THREADS];
    __shared__ unsigned tile, prefix;

    if (threadIdx.x == 0)
        tile = atomicAdd(ticket, 1);
    __syncthreads();
    int i = tile * THREADS + threadIdx.x;
    unsigned sum = inclusive(i < n ? in[i] : 0, sums);

    if (threadIdx.x == THREADS - 1) {
        unsigned before = 0;
        volatile unsigned long long *own = states + tile;
        if (tile > 0) {
            *own = PARTIAL | sum;
            for (int t = tile - 1;; t--) {
                unsigned long long state;
                do
                    state = states[t];
                while (state == 0);
                before += unsigned(state);
                if (state & PREFIX)
                    break;
            }
        }
        *own = PREFIX | (unsigned)(before + sum);
        prefix = before;
    }
    __syncthreads();
    if (i < n)
        out[i] = prefix + sum;
}
