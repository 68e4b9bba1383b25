// Gravity between all pairs of n bodies, through tiles of bodies in shared
// memory. n is a multiple of the block size; a body is (x, y, z, mass).
constexpr int THREADS = 128;

extern "C" __global__ void nbody(const float4 *bodies, float4 *accelerations, float softening2, int n) {
    __shared__ float4 tile[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x;
    float4 p = bodies[i];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int base = 0; base < n; base += THREADS) {
        tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < THREADS; k++) {
            float4 q = tile[k];
            float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
            float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, softening2)));
            float inverse = rsqrtf(r2);  // rsqrt.approx
            float scale = q.w * inverse * inverse * inverse;
            ax = fmaf(dx, scale, ax);
            ay = fmaf(dy, scale, ay);
            az = fmaf(dz, scale, az);
        }
        __syncthreads();
    }
    accelerations[i] = make_float4(ax, ay, az, 0.0f);
}
