// Transposes a matrix through tiles in dynamic shared memory, whose rows are
// padded by one against bank conflicts. Blocks of 32×8 threads; the tile's side is
// 32, its pitch is given.
extern __shared__ unsigned tile[];

extern "C" __global__ void transpose(const unsigned *in, unsigned *out, int width, int height, int pitch) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (x < width && y + k < height)
            tile[(threadIdx.y + k) * pitch + threadIdx.x] = in[(y + k) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (x < height && y + k < width)
            out[(y + k) * height + x] = tile[threadIdx.x * pitch + threadIdx.y + k];
}
