// How long points of the plane stay near the origin under z ← z² + c, in double
// precision: neighbouring threads loop for very different times.
extern "C" __global__ void mandelbrot(unsigned short *counts, double x0, double y0, double step, int width, int height,
                                      int most) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    double cr = x0 + x * step, ci = y0 + y * step, zr = 0.0, zi = 0.0;
    int count = 0;
    while (count < most && zr * zr + zi * zi <= 4.0) {
        double next = zr * zr - zi * zi + cr;
        zi = 2.0 * zr * zi + ci;
        zr = next;
        count++;
    }
    counts[y * width + x] = count;
}
