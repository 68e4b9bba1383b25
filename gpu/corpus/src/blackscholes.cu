// European options by Black and Scholes, with the cumulative normal distribution
// as a polynomial (Abramowitz and Stegun 26.2.17). Logarithm, exponential and
// reciprocal square root are the library's, which rest on the hardware's
// approximations.
__device__ float normal_cdf(float d) {
    float k = 1.0f / fmaf(0.2316419f, fabsf(d), 1.0f);
    float p = fmaf(k, 1.330274429f, -1.821255978f);
    p = fmaf(k, p, 1.781477937f);
    p = fmaf(k, p, -0.356563782f);
    p = fmaf(k, p, 0.31938153f) * k;
    float tail = 0.39894228f * expf(-0.5f * d * d) * p;
    return d > 0.0f ? 1.0f - tail : tail;
}

extern "C" __global__ void black_scholes(const float *spots, const float *strikes, const float *years, float *calls,
                                         float *puts, float rate, float volatility, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float s = spots[i], k = strikes[i], t = years[i];
    float deviation = volatility * sqrtf(t);
    float d1 = (logf(s / k) + (rate + 0.5f * volatility * volatility) * t) / deviation;
    float d2 = d1 - deviation;
    float discounted = k * expf(-rate * t);
    float call = s * normal_cdf(d1) - discounted * normal_cdf(d2);
    calls[i] = call;
    puts[i] = call + discounted - s;
}
