// CUB's scans, selections and run lengths: blocks that look back at those before.
#include <cub/cub.cuh>

struct Even {
    __device__ bool operator()(int v) const { return v % 2 == 0; }
};

void scan(void *room, size_t &bytes, int *in, int *out, double *d, int *count, int n) {
    cub::DeviceScan::InclusiveSum(room, bytes, in, out, n);
    cub::DeviceScan::ExclusiveSum(room, bytes, d, d, n);
    cub::DeviceSelect::If(room, bytes, in, out, count, n, Even());
    cub::DeviceSelect::Unique(room, bytes, in, out, count, n);
    cub::DevicePartition::If(room, bytes, in, out, count, n, Even());
    cub::DeviceRunLengthEncode::Encode(room, bytes, in, out, out, count, n);
}
