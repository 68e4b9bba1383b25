// What the threads of a warp tell one another: shuffles of all four kinds, with
// segments, votes, matches, integer reductions (sm_80 and later), under full and
// partial masks.
constexpr unsigned ALL = 0xffffffff;

// Row k of out is n words: one warp operation each over the same input.
extern "C" __global__ void warp_exchange(const unsigned *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    if (i >= n)  // n is a multiple of 32: whole warps leave
        return;
    unsigned x = in[i];
    int row = 0;
    auto put = [&](unsigned value) { out[row++ * n + i] = value; };

    put(__shfl_sync(ALL, x, (lane * 7 + 3) % 32));
    put(__shfl_sync(ALL, x, 2, 8));
    put(__shfl_up_sync(ALL, x, 3));
    put(__shfl_up_sync(ALL, x, 1, 16));
    put(__shfl_down_sync(ALL, x, 5));
    put(__shfl_down_sync(ALL, x, 2, 4));
    put(__shfl_xor_sync(ALL, x, 21));
    put(__shfl_xor_sync(ALL, x, 3, 8));
    put(__ballot_sync(ALL, x & 1));
    put(__any_sync(ALL, x % 64 == 0));
    put(__all_sync(ALL, x % 64 != 0));
    put(__match_any_sync(ALL, x & 3));
    int same;
    put(__match_all_sync(ALL, x & 0x80000000, &same));
    put(same);
    put(__reduce_add_sync(ALL, x));
    put(__reduce_min_sync(ALL, x));
    put(__reduce_max_sync(ALL, int(x)));
    put(__reduce_and_sync(ALL, x | 0xff));
    put(__reduce_or_sync(ALL, x & 0xff));
    put(__reduce_xor_sync(ALL, x));

    // Odd and even lanes apart, each under its own mask.
    unsigned value;
    if (lane & 1)
        value = __shfl_down_sync(0xaaaaaaaa, x, 2);
    else
        value = __reduce_add_sync(0x55555555, x) + __ballot_sync(0x55555555, x & 2);
    __syncwarp();
    put(value);
    // The lanes that take a branch exchange among themselves.
    unsigned takers = __ballot_sync(ALL, x & 4), together = 0;
    if (x & 4)
        together = __match_any_sync(takers, x & 0x18) + (__activemask() >> lane & 1);
    put(together);
}

// Sum over each warp by butterfly, in float: the order is the butterfly's.
extern "C" __global__ void warp_sum(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float sum = in[i];
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL, sum, distance);
    out[i] = sum;
}
