// CUB's radix sorts: for keys of 4 and 8 bytes in one sweep, whose blocks wait for
// those before them, and for others in passes with a scan.
#include <cub/cub.cuh>

void radix(void *room, size_t &bytes, unsigned *k, unsigned long long *w, float *f, int *v, int n) {
    cub::DeviceRadixSort::SortPairs(room, bytes, k, k, v, v, n);
    cub::DeviceRadixSort::SortKeys(room, bytes, w, w, n);
    cub::DeviceRadixSort::SortKeysDescending(room, bytes, f, f, n);
}
