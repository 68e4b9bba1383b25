// Fast Fourier transform of many rows of 512 complex numbers, one block a row:
// radix-2 Stockham in shared memory, with the twiddle factors in constant memory.
// No multiplication is fused, so that the result is defined bit for bit.
constexpr int N = 512;

__constant__ float2 twiddles[N / 2];  // exp(−2πi·k/N), set by the host

// Transforms each row of data in place; inverse transforms are not divided by N.
extern "C" __global__ void fft512(float2 *data, int inverse) {
    __shared__ float2 rows[2][N];
    float2 *row = data + blockIdx.x * N;
    int t = threadIdx.x;  // N/2 threads, one butterfly each
    rows[0][t] = row[t];
    rows[0][t + N / 2] = row[t + N / 2];

    int from = 0;
    for (int span = 1; span < N; span *= 2) {  // length of the transforms done so far
        __syncthreads();
        int k = t & (span - 1);
        float2 w = twiddles[k * (N / 2 / span)];
        if (inverse)
            w.y = -w.y;
        float2 a = rows[from][t], b = rows[from][t + N / 2];
        float2 c = make_float2(b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x);
        int to = 2 * t - k;
        rows[1 - from][to] = make_float2(a.x + c.x, a.y + c.y);
        rows[1 - from][to + span] = make_float2(a.x - c.x, a.y - c.y);
        from = 1 - from;
    }
    __syncthreads();
    row[t] = rows[from][t];
    row[t + N / 2] = rows[from][t + N / 2];
}
