// Sparse matrix times vector, y = A·x, with A in compressed rows: row r's values
// and columns lie at offsets[r] … offsets[r+1].

// One thread a row: threads of a warp run loops of different length.
extern "C" __global__ void spmv_scalar(const int *offsets, const int *columns, const float *values, const float *x,
                                       float *y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int k = offsets[row]; k < offsets[row + 1]; k++)
        sum = fmaf(values[k], x[columns[k]], sum);
    y[row] = sum;
}

// One warp a row: coalesced reads, then the lanes' sums meet by shuffles.
extern "C" __global__ void spmv_vector(const int *offsets, const int *columns, const float *values, const float *x,
                                       float *y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int k = offsets[row] + lane; k < offsets[row + 1]; k += 32)
        sum = fmaf(values[k], x[columns[k]], sum);
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (lane == 0)
        y[row] = sum;
}
