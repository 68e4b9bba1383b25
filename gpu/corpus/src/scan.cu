// Exclusive prefix sum in two passes. scan_blocks scans each block's elements in
// shared memory (Blelloch's up-sweep and down-sweep) and notes the block's total;
// launched once more over the totals it gives each block's offset, which
// scan_add then adds.
constexpr int THREADS = 256;
constexpr int ELEMENTS = 2 * THREADS;  // a block's

extern "C" __global__ void scan_blocks(const unsigned *in, unsigned *out, unsigned *totals, int n) {
    __shared__ unsigned tree[ELEMENTS];
    int base = blockIdx.x * ELEMENTS;
    int left = threadIdx.x, right = threadIdx.x + THREADS;
    tree[left] = base + left < n ? in[base + left] : 0;
    tree[right] = base + right < n ? in[base + right] : 0;

    // Up: each node becomes the sum of its two children.
    int distance = 1;
    for (int nodes = THREADS; nodes > 0; nodes /= 2) {
        __syncthreads();
        if (threadIdx.x < nodes) {
            int a = distance * (2 * threadIdx.x + 1) - 1;
            tree[a + distance] += tree[a];
        }
        distance *= 2;
    }
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = tree[ELEMENTS - 1];
        tree[ELEMENTS - 1] = 0;
    }
    // Down: each node hands its own sum left, and the left child's on top right.
    for (int nodes = 1; nodes <= THREADS; nodes *= 2) {
        distance /= 2;
        __syncthreads();
        if (threadIdx.x < nodes) {
            int a = distance * (2 * threadIdx.x + 1) - 1;
            unsigned before = tree[a];
            tree[a] = tree[a + distance];
            tree[a + distance] += before;
        }
    }
    __syncthreads();
    if (base + left < n)
        out[base + left] = tree[left];
    if (base + right < n)
        out[base + right] = tree[right];
}

extern "C" __global__ void scan_add(unsigned *out, const unsigned *offsets, int n) {
    int base = blockIdx.x * ELEMENTS;
    unsigned offset = offsets[blockIdx.x];
    for (int i = base + threadIdx.x; i < min(base + ELEMENTS, n); i += THREADS)
        out[i] += offset;
}
