// Lloyd's k-means, three launches an iteration: give each point its nearest
// centroid, add the points up by cluster, take the means. Sums are in fixed
// point, 2⁻²⁰, because integers may be added in any order.
constexpr float FIXED = 1048576.0f;

// Features lie column by column: feature f of point i at points[f*n + i].
extern "C" __global__ void kmeans_assign(const float *points, const float *centroids, int *membership, int n, int k,
                                         int features) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int nearest = 0;
    float least = 3.4e38f;
    for (int c = 0; c < k; c++) {
        float distance2 = 0.0f;
        for (int f = 0; f < features; f++) {
            float d = points[f * n + i] - centroids[c * features + f];
            distance2 = fmaf(d, d, distance2);
        }
        if (distance2 < least) {
            least = distance2;
            nearest = c;
        }
    }
    membership[i] = nearest;
}

// sums and sizes are zero before.
extern "C" __global__ void kmeans_sum(const float *points, const int *membership, long long *sums, unsigned *sizes,
                                      int n, int features) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int c = membership[i];
    atomicAdd(&sizes[c], 1u);
    for (int f = 0; f < features; f++) {
        long long fixed = __float2ll_rn(points[f * n + i] * FIXED);
        atomicAdd((unsigned long long *)&sums[c * features + f], (unsigned long long)fixed);
    }
}

// Clears sums and sizes for the next iteration. A cluster without points keeps
// its centroid. One block a cluster, one thread a feature.
extern "C" __global__ void kmeans_mean(long long *sums, unsigned *sizes, float *centroids, int features) {
    int c = blockIdx.x, f = threadIdx.x;
    unsigned size = sizes[c];
    __syncthreads();
    if (size > 0)
        centroids[c * features + f] = float(double(sums[c * features + f]) / (double(FIXED) * size));
    sums[c * features + f] = 0;
    if (f == 0)
        sizes[c] = 0;
}
