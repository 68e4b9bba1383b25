// Path finding by dynamic programming: the cheapest way down a grid of costs, one
// row at a time, straight or diagonally. A launch advances several rows in shared
// memory; a block's tile overlaps its neighbours' by as many columns as it
// advances rows, since that is how far a wrong rim creeps in.
constexpr int THREADS = 256;

extern "C" __global__ void pathfinder(const int *costs, const int *from, int *to, int columns, int row, int steps) {
    __shared__ int best[THREADS], next[THREADS];
    int kept = THREADS - 2 * steps;  // columns that a block answers for
    int column = blockIdx.x * kept - steps + int(threadIdx.x);
    bool inside = column >= 0 && column < columns;
    best[threadIdx.x] = inside ? from[column] : 0x3fffffff;
    __syncthreads();

    for (int k = 0; k < steps; k++) {
        int left = best[max(int(threadIdx.x) - 1, 0)];
        int right = best[min(int(threadIdx.x) + 1, THREADS - 1)];
        int shortest = min(best[threadIdx.x], min(left, right));
        next[threadIdx.x] = inside ? shortest + costs[(row + k) * columns + column] : 0x3fffffff;
        __syncthreads();
        best[threadIdx.x] = next[threadIdx.x];
        __syncthreads();
    }
    if (inside && threadIdx.x >= steps && threadIdx.x < THREADS - steps)
        to[column] = best[threadIdx.x];
}
