// Back propagation through one hidden layer: the forward sums by blocks of 16 inputs,
// and the adjustment of the weights with momentum. weights[input][hidden], a row of
// hidden units an input.
constexpr int SIDE = 16;

// Block y sums SIDE inputs for every hidden unit, in a tree. partial[y][hidden].
extern "C" __global__ void backprop_forward(const float *in, const float *weights, float *partial, int hidden) {
    __shared__ float inputs[SIDE], products[SIDE][SIDE];
    int x = threadIdx.x, y = threadIdx.y;
    int input = blockIdx.y * SIDE + y, unit = blockIdx.x * SIDE + x;
    if (x == 0)
        inputs[y] = in[input];
    __syncthreads();
    products[y][x] = weights[input * hidden + unit] * inputs[y];
    for (int half = SIDE / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half)
            products[y][x] += products[y + half][x];
    }
    if (y == 0)
        partial[blockIdx.y * hidden + unit] = products[0][x];
}

// One thread a weight.
extern "C" __global__ void backprop_adjust(const float *delta, const float *in, float *weights, float *before,
                                           int hidden, float rate, float momentum) {
    int unit = blockIdx.x * SIDE + threadIdx.x, input = blockIdx.y * SIDE + threadIdx.y;
    int i = input * hidden + unit;
    float change = fmaf(momentum, before[i], rate * delta[unit] * in[input]);
    weights[i] += change;
    before[i] = change;
}
