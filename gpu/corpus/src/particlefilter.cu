// A particle filter's step: particles move, are weighed by how well they explain
// an observation, and are drawn anew in proportion to their weights (systematic
// resampling). The exponential is computed here rather than by the hardware's
// approximation, so that every bit is defined: a last bit could decide which
// particle is drawn.
constexpr int THREADS = 256;

// exp(x) for x in [−80, 0]: 2^k times a polynomial over half an octave to
// either side.
__device__ float exp_negative(float x) {
    float k = rintf(x * 1.44269504f);
    float r = fmaf(k, -0.693359375f, x);
    r = fmaf(k, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    return p * __int_as_float((int(k) + 127) << 23);
}

// A number in [−1, 1) from a counter (Wellons' lowbias32 hash).
__device__ float noise(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return float(int(x)) * 4.6566129e-10f;
}

extern "C" __global__ void particles_move(float2 *places, float *weights, float2 velocity, float2 seen, float spread,
                                          unsigned step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float2 p = places[i];
    p.x += velocity.x + 2.0f * noise(step * 2u * n + 2u * i);
    p.y += velocity.y + 2.0f * noise(step * 2u * n + 2u * i + 1u);
    places[i] = p;
    float dx = p.x - seen.x, dy = p.y - seen.y;
    weights[i] = exp_negative(fmaxf(-(dx * dx + dy * dy) * spread, -80.0f));
}

// One block: cumulative[i] = weights[0] + … + weights[i]. A thread adds up a run
// of neighbours, the runs' sums are scanned, and each thread runs over its own
// once more.
extern "C" __global__ void particles_accumulate(const float *weights, float *cumulative, int n) {
    __shared__ float sums[THREADS];
    int run = (n + THREADS - 1) / THREADS;
    int from = min(int(threadIdx.x) * run, n), to = min(from + run, n);
    float sum = 0.0f;
    for (int i = from; i < to; i++)
        sum += weights[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int t = 0; t < THREADS; t++) {
            float own = sums[t];
            sums[t] = total;
            total += own;
        }
    }
    __syncthreads();
    sum = sums[threadIdx.x];
    for (int i = from; i < to; i++) {
        sum += weights[i];
        cumulative[i] = sum;
    }
}

// Particle i of the next generation is the first whose cumulative weight exceeds
// (i + offset)/n of the total: a binary search in each thread.
extern "C" __global__ void particles_resample(const float2 *places, const float *cumulative, float2 *next, int *parents,
                                              float offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float wanted = (float(i) + offset) / float(n) * cumulative[n - 1];
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (cumulative[middle] > wanted)
            high = middle;
        else
            low = middle + 1;
    }
    parents[i] = low;
    next[i] = places[low];
}
