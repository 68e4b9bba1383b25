// Nine-point stencil on a width×height grid whose rim stays as it is. A block
// computes 16×16 points from an 18×18 tile in shared memory.
constexpr int TILE = 16;

extern "C" __global__ void stencil9(const float *in, float *out, int width, int height, float center, float side,
                                    float corner) {
    __shared__ float tile[TILE + 2][TILE + 2];
    int x0 = blockIdx.x * TILE - 1, y0 = blockIdx.y * TILE - 1;
    for (int k = threadIdx.y * TILE + threadIdx.x; k < (TILE + 2) * (TILE + 2); k += TILE * TILE) {
        int x = min(max(x0 + k % (TILE + 2), 0), width - 1);
        int y = min(max(y0 + k / (TILE + 2), 0), height - 1);
        tile[k / (TILE + 2)][k % (TILE + 2)] = in[y * width + x];
    }
    __syncthreads();

    int x = x0 + 1 + threadIdx.x, y = y0 + 1 + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    float old = tile[ty][tx];
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * width + x] = old;
        return;
    }
    float sides = tile[ty - 1][tx] + tile[ty + 1][tx] + tile[ty][tx - 1] + tile[ty][tx + 1];
    float corners = tile[ty - 1][tx - 1] + tile[ty - 1][tx + 1] + tile[ty + 1][tx - 1] + tile[ty + 1][tx + 1];
    out[y * width + x] = center * old + side * sides + corner * corners;
}
