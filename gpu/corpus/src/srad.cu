// Speckle reducing anisotropic diffusion (Yu and Acton, 2002). Each iteration
// takes three launches: sums over the image for its speckle scale, the diffusion
// coefficient of each pixel, the update. Neighbours beyond the rim are the rim.

constexpr int THREADS = 256;

// One block: mean and variance of the image give q0² = variance / mean², stored
// to scale[0]. Sums are in double precision and a fixed order.
extern "C" __global__ void srad_scale(const float *image, float *scale, int n) {
    __shared__ double sums[THREADS], squares[THREADS];
    double sum = 0.0, square = 0.0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        double value = image[i];
        sum += value;
        square += value * value;
    }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            squares[threadIdx.x] += squares[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        double mean = sums[0] / n;
        double variance = squares[0] / n - mean * mean;
        scale[0] = float(variance / (mean * mean));
    }
}

extern "C" __global__ void srad_coefficients(const float *image, const float *scale, float *coefficients, int width,
                                             int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float j = image[y * width + x];
    float north = image[max(y - 1, 0) * width + x] - j, south = image[min(y + 1, height - 1) * width + x] - j;
    float west = image[y * width + max(x - 1, 0)] - j, east = image[y * width + min(x + 1, width - 1)] - j;
    float gradient2 = (north * north + south * south + west * west + east * east) / (j * j);
    float laplacian = (north + south + west + east) / j;
    float numerator = 0.5f * gradient2 - 0.0625f * (laplacian * laplacian);
    float denominator = 1.0f + 0.25f * laplacian;
    float q2 = numerator / (denominator * denominator);
    float q02 = scale[0];
    float c = 1.0f / (1.0f + (q2 - q02) / (q02 * (1.0f + q02)));
    coefficients[y * width + x] = __saturatef(c);
}

extern "C" __global__ void srad_update(const float *in, const float *coefficients, float *out, int width, int height,
                                       float lambda) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int i = y * width + x, below = min(y + 1, height - 1) * width + x, right = y * width + min(x + 1, width - 1);
    float j = in[i];
    float north = in[max(y - 1, 0) * width + x] - j, south = in[below] - j;
    float west = in[y * width + max(x - 1, 0)] - j, east = in[right] - j;
    float here = coefficients[i];
    float divergence = here * north + coefficients[below] * south + here * west + coefficients[right] * east;
    out[i] = j + 0.25f * lambda * divergence;
}
