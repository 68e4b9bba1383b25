// Batcher's bitonic sort of 2^k unsigned keys, ascending. The network's steps of
// short distance run in shared memory, one launch for all of them; a step of long
// distance takes a launch of its own.
constexpr int ELEMENTS = 512;  // a block's, two a thread

// Whether the run that element i belongs to is sorted ascending while runs have
// the given length.
__device__ bool ascending(unsigned i, unsigned run) { return (i & run) == 0; }

__device__ void exchange(unsigned &a, unsigned &b, bool up) {
    if ((a > b) == up) {
        unsigned t = a;
        a = b;
        b = t;
    }
}

// Sorts runs of length first … last as far as distances below ELEMENTS go.
extern "C" __global__ void bitonic_shared(unsigned *keys, unsigned first, unsigned last) {
    __shared__ unsigned tile[ELEMENTS];
    unsigned base = blockIdx.x * ELEMENTS;
    tile[threadIdx.x] = keys[base + threadIdx.x];
    tile[threadIdx.x + ELEMENTS / 2] = keys[base + threadIdx.x + ELEMENTS / 2];

    for (unsigned run = first; run <= last; run *= 2)
        for (unsigned distance = min(run, ELEMENTS) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            unsigned i = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
            exchange(tile[i], tile[i + distance], ascending(base + i, run));
        }
    __syncthreads();
    keys[base + threadIdx.x] = tile[threadIdx.x];
    keys[base + threadIdx.x + ELEMENTS / 2] = tile[threadIdx.x + ELEMENTS / 2];
}

extern "C" __global__ void bitonic_global(unsigned *keys, unsigned run, unsigned distance) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned i = 2 * t - (t & (distance - 1));
    exchange(keys[i], keys[i + distance], ascending(i, run));
}
