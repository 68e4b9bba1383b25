// Sweeps over a ring of values with a barrier over all blocks of the grid between
// them, made by hand in two ways: so each block waits for all others, and all must
// be on the GPU at once. (Xiao and Feng, "Inter-Block GPU Communication via Fast
// Barrier Synchronization", 2010.)

// A counter that never goes back: everybody waits until all have arrived so often.
__device__ void meet_count(unsigned *arrived, unsigned goal) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile unsigned *)arrived < goal)
            ;
        __threadfence();
    }
    __syncthreads();
}

// A counter that wraps, and a word that whoever arrives last changes.
__device__ void meet_flag(unsigned *arrived, unsigned *generation) {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned before = *(volatile unsigned *)generation;
        __threadfence();
        if (atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1) {
            __threadfence();
            atomicAdd(generation, 1);
        } else {
            while (*(volatile unsigned *)generation == before)
                ;
        }
        __threadfence();
    }
    __syncthreads();
}

__device__ void sweep(const unsigned *from, unsigned *to, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] = from[i == 0 ? n - 1 : i - 1] + 2 * from[i] + from[i == n - 1 ? 0 : i + 1];
}

// arrived is zero.
extern "C" __global__ void gridbarrier_count(unsigned *a, unsigned *b, unsigned *arrived, int n, int sweeps) {
    for (int s = 0; s < sweeps; s++) {
        sweep(s % 2 ? b : a, s % 2 ? a : b, n);
        meet_count(arrived, (s + 1) * gridDim.x);
    }
}

// arrived is zero, and is again afterwards.
extern "C" __global__ void gridbarrier_flag(unsigned *a, unsigned *b, unsigned *arrived, unsigned *generation, int n,
                                            int sweeps) {
    for (int s = 0; s < sweeps; s++) {
        sweep(s % 2 ? b : a, s % 2 ? a : b, n);
        meet_flag(arrived, generation);
    }
}
