// Breadth-first search, one launch a level: every node of the frontier gives its
// unvisited neighbours their level. Several may give one node the same level;
// they store the same value. Edges of node v are at offsets[v] … offsets[v+1].
extern "C" __global__ void bfs_level(const int *offsets, const int *edges, int *levels, int *changed, int level,
                                     int nodes) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= nodes || levels[v] != level)
        return;
    for (int k = offsets[v]; k < offsets[v + 1]; k++) {
        int w = edges[k];
        if (levels[w] < 0) {
            levels[w] = level + 1;
            changed[level] = 1;
        }
    }
}
