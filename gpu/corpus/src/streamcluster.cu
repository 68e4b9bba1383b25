// Stream clustering's gain (O'Callaghan and others, 2002): what it would save to open a
// centre at one point. Thread i compares point i's cost at its own centre with that at
// the candidate. Where the candidate is nearer, the point would switch, and the saving
// is the candidate's; else the saving of closing the point's centre shrinks.
constexpr int DIMENSIONS = 256;  // at most

// Coordinate d of point i is points[d*n + i]. savings[i] is negative for a point that
// would switch; lost[i*centres + c] is what closing centre c costs for point i.
extern "C" __global__ void streamcluster_gain(const float *points, const float *weights, const float *costs,
                                              const int *assigned, const int *centre, float *savings, float *lost,
                                              unsigned char *switches, int n, int dimensions, int centres,
                                              int candidate) {
    __shared__ float coordinates[DIMENSIONS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int d = threadIdx.x; d < dimensions; d += blockDim.x)
        coordinates[d] = points[d * n + candidate];
    __syncthreads();
    if (i >= n)
        return;
    float distance2 = 0.0f;
    for (int d = 0; d < dimensions; d++) {
        float by = points[d * n + i] - coordinates[d];
        distance2 = fmaf(by, by, distance2);
    }
    float change = fmaf(distance2, weights[i], -costs[i]);
    if (change < 0.0f) {
        switches[i] = 1;
        savings[i] += change;
    } else {
        switches[i] = 0;
        lost[i * centres + centre[assigned[i]]] -= change;
    }
}
