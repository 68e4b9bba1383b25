// CUB's reductions and histograms.
#include <cub/cub.cuh>

struct Plus {
    __device__ int operator()(int a, int b) const { return a + b; }
};

void reduce(void *room, size_t &bytes, int *in, int *out, float *f, int *count, int n) {
    cub::DeviceReduce::Sum(room, bytes, f, f, n);
    cub::DeviceReduce::ReduceByKey(room, bytes, in, in, out, out, count, Plus(), n);
    cub::DeviceHistogram::HistogramEven(room, bytes, in, count, 257, 0, 1 << 20, n);
}
