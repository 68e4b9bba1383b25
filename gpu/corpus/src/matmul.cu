// Matrix product C = A·B of n×n floats, row by row, in 16×16 tiles held in shared
// memory. n is a multiple of 16. Each element is one chain of fused
// multiply-adds, in the order of the inner index.
constexpr int TILE = 16;

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;

    float sum = 0.0f;
    for (int base = 0; base < n; base += TILE) {
        tile_a[y][x] = a[row * n + base + x];
        tile_b[y][x] = b[(base + y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum = fmaf(tile_a[y][k], tile_b[k][x], sum);
        __syncthreads();
    }
    c[row * n + column] = sum;
}
