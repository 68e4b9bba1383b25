// CUB's sorts and reductions of many short segments.
#include <cub/cub.cuh>

void segments(void *room, size_t &bytes, unsigned *k, int *v, int *offsets, int n) {
    cub::DeviceSegmentedRadixSort::SortPairs(room, bytes, k, k, v, v, n, n / 8, offsets, offsets + 1);
    cub::DeviceSegmentedReduce::Sum(room, bytes, v, v, n / 8, offsets, offsets + 1);
}
