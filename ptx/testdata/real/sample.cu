// A little of everything that a compiler writes line tables and debug sections
// for: inlined and called device functions, shared and constant memory, a local
// array, a struct, a loop, a switch.
struct Particle {
    float position[3];
    float mass;
};

__constant__ float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ unsigned long long visits;

__device__ __noinline__ float potential(const Particle &p, float softening) {
    float r2 = softening;
    for (int k = 0; k < 3; k++)
        r2 += p.position[k] * p.position[k];
    return p.mass / sqrtf(r2);
}

__device__ __forceinline__ int classify(float energy) {
    switch (int(energy) & 7) {
    case 0: return 3;
    case 1: return 1;
    case 2: return 4;
    case 3: return 1;
    case 4: return 5;
    case 5: return 9;
    case 6: return 2;
    default: return 6;
    }
}

extern "C" __global__ void sample(const Particle *particles, int *classes, int n) {
    __shared__ float energies[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    energies[threadIdx.x] = i < n ? potential(particles[i], 0.25f) : 0.0f;
    __syncthreads();
    if (i >= n)
        return;
    float window[8];
    for (int k = 0; k < 8; k++)
        window[k] = energies[(threadIdx.x + k) % blockDim.x] * weights[k];
    classes[i] = classify(window[classes[i] & 7]);
    atomicAdd(&visits, 1ull);
}
