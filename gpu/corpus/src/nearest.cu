// Nearest neighbour: the distance of every record from a place, and the nearest
// record. A distance that is not negative orders as its bits do, so distance and
// index fit one 64-bit word whose atomic minimum is the answer, lowest index
// first among equals.
extern "C" __global__ void nearest(const float2 *places, float *distances, unsigned long long *best, float x, float y,
                                   int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float dx = places[i].x - x, dy = places[i].y - y;
    float distance = sqrtf(dx * dx + dy * dy);
    distances[i] = distance;
    atomicMin(best, (unsigned long long)__float_as_uint(distance) << 32 | unsigned(i));
}
