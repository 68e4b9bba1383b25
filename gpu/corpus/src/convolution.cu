// Convolution of a batch of images with a bank of filters, without padding, in two
// forms as cuda-convnet has them: over all of a few channels at a time, and over
// groups of many channels where a filter sees only its group's. Images lie with the
// batch innermost, images[channel][y][x][image], filters[channel][tap][filter],
// out[filter][y][x][image].
//
// A block computes FILTERS filters of BATCH images at one place. It brings in the
// values of TAPS taps at a time; a thread computes four filters of four images.
constexpr int BATCH = 64, FILTERS = 16, TAPS = 8;
constexpr int EACH = 4;
constexpr int COLUMNS = BATCH / EACH, ROWS = FILTERS / EACH, THREADS = COLUMNS * ROWS;

// taps are those of one filter: channels times size times size, and tap t is channel
// t % channels if BY_TAP, else t / (size * size).
template <bool BY_TAP>
__device__ void convolve(const float *images, const float *filters, float *out, int batch, int width, int size,
                         int channels, int all, int channel0, int filter0) {
    __shared__ float pixels[TAPS][BATCH], weights[TAPS][FILTERS];
    int outside = width - size + 1;
    int x = blockIdx.y % outside, y = blockIdx.y / outside;
    int first = blockIdx.x * BATCH;
    int column = threadIdx.x % COLUMNS, row = threadIdx.x / COLUMNS;
    int area = size * size, taps = channels * area;
    float sums[EACH][EACH] = {};
    for (int base = 0; base < taps; base += TAPS) {
        for (int k = 0; k < TAPS; k++) {
            int t = base + k;
            int channel = BY_TAP ? t % channels : t / area, tap = BY_TAP ? t / channels : t % area;
            int px = x + tap % size, py = y + tap / size;
            pixels[k][threadIdx.x] =
                t < taps ? images[(((channel0 + channel) * width + py) * width + px) * batch + first + threadIdx.x] : 0.0f;
            if (threadIdx.x < FILTERS)
                weights[k][threadIdx.x] = t < taps ? filters[(channel * area + tap) * all + filter0 + threadIdx.x] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int f = 0; f < EACH; f++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    sums[f][i] = fmaf(weights[k][row * EACH + f], pixels[k][column + i * COLUMNS], sums[f][i]);
        __syncthreads();
    }
#pragma unroll
    for (int f = 0; f < EACH; f++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            out[((filter0 + row * EACH + f) * outside * outside + blockIdx.y) * batch + first + column + i * COLUMNS] =
                sums[f][i];
}

// Every filter sees every channel. The grid: BATCH images; places; FILTERS filters.
extern "C" __global__ void __launch_bounds__(THREADS)
    conv_color(const float *images, const float *filters, float *out, int batch, int width, int size, int channels,
               int all) {
    convolve<true>(images, filters, out, batch, width, size, channels, all, 0, blockIdx.z * FILTERS);
}

// Group g of FILTERS filters sees the channels from group[g] on.
extern "C" __global__ void __launch_bounds__(THREADS)
    conv_sparse(const float *images, const float *filters, const int *group, float *out, int batch, int width,
                int size, int channels, int all) {
    convolve<false>(images, filters, out, batch, width, size, channels, all, group[blockIdx.z], blockIdx.z * FILTERS);
}
