// LU decomposition in place, without pivoting, in tiles of 16 x 16: three launches a
// diagonal tile, for it, for the tiles beside and below it, and for the rest.
constexpr int TILE = 16;

// One block of TILE threads decomposes the tile at (from, from).
extern "C" __global__ void lud_diagonal(float *a, int n, int from) {
    __shared__ float tile[TILE][TILE];
    int t = threadIdx.x;
    float *corner = a + from * n + from;
    for (int row = 0; row < TILE; row++)
        tile[row][t] = corner[row * n + t];
    __syncthreads();
    for (int k = 0; k < TILE - 1; k++) {
        if (t > k)
            tile[t][k] /= tile[k][k];
        __syncthreads();
        if (t > k)
            for (int column = k + 1; column < TILE; column++)
                tile[t][column] = fmaf(-tile[t][k], tile[k][column], tile[t][column]);
        __syncthreads();
    }
    for (int row = 0; row < TILE; row++)
        corner[row * n + t] = tile[row][t];
}

// Block b solves the tile b + 1 to the right of the diagonal one with its first TILE
// threads, a column each, and the tile b + 1 below with the others, a row each.
extern "C" __global__ void lud_perimeter(float *a, int n, int from) {
    __shared__ float diagonal[TILE][TILE], right[TILE][TILE], below[TILE][TILE + 1];
    int t = threadIdx.x % TILE;
    bool rows = threadIdx.x >= TILE;
    int beyond = from + (blockIdx.x + 1) * TILE;
    for (int row = rows ? TILE / 2 : 0; row < (rows ? TILE : TILE / 2); row++)
        diagonal[row][t] = a[(from + row) * n + from + t];
    for (int row = 0; row < TILE; row++) {
        if (rows)
            below[row][t] = a[(beyond + row) * n + from + t];
        else
            right[row][t] = a[(from + row) * n + beyond + t];
    }
    __syncthreads();
    if (rows) {
        for (int column = 0; column < TILE; column++) {
            for (int k = 0; k < column; k++)
                below[t][column] = fmaf(-below[t][k], diagonal[k][column], below[t][column]);
            below[t][column] /= diagonal[column][column];
        }
    } else {
        for (int row = 1; row < TILE; row++)
            for (int k = 0; k < row; k++)
                right[row][t] = fmaf(-diagonal[row][k], right[k][t], right[row][t]);
    }
    __syncthreads();
    for (int row = 0; row < TILE; row++) {
        if (rows)
            a[(beyond + row) * n + from + t] = below[row][t];
        else
            a[(from + row) * n + beyond + t] = right[row][t];
    }
}

// Block (x, y) subtracts the product of the tile below the diagonal in its row and the
// one right of the diagonal in its column.
extern "C" __global__ void lud_internal(float *a, int n, int from) {
    __shared__ float left[TILE][TILE], above[TILE][TILE];
    int column = from + (blockIdx.x + 1) * TILE + threadIdx.x, row = from + (blockIdx.y + 1) * TILE + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = a[row * n + from + threadIdx.x];
    above[threadIdx.y][threadIdx.x] = a[(from + threadIdx.y) * n + column];
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < TILE; k++)
        sum = fmaf(left[threadIdx.y][k], above[k][threadIdx.x], sum);
    a[row * n + column] -= sum;
}
