// A chip's temperature from its dissipated power: one explicit step of the heat
// equation a launch. Beyond the rim the temperature is that of the rim.
extern "C" __global__ void hotspot(const float *power, const float *in, float *out, int width, int height, float dt,
                                   float rx, float ry, float rz, float ambient) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float t = in[y * width + x];
    float north = in[max(y - 1, 0) * width + x], south = in[min(y + 1, height - 1) * width + x];
    float west = in[y * width + max(x - 1, 0)], east = in[y * width + min(x + 1, width - 1)];
    float flow = power[y * width + x] + (north + south - 2.0f * t) / ry + (east + west - 2.0f * t) / rx +
                 (ambient - t) / rz;
    out[y * width + x] = t + dt * flow;
}
