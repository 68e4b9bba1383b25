// A fully connected layer of a neural network over a batch: outputs = f(W·in + b).
// Weights lie row by row, one row an output; the block shares a tile of the
// inputs. f is the rectifier or the logistic function.
constexpr int TILE = 64;  // inputs a step, and threads a block

enum Activation { RECTIFIER, LOGISTIC };

extern "C" __global__ void dense(const float *in, const float *weights, const float *bias, float *out, int inputs,
                                 int outputs, int activation) {
    __shared__ float tile[TILE];
    int o = blockIdx.x * TILE + threadIdx.x, sample = blockIdx.y;
    float sum = o < outputs ? bias[o] : 0.0f;
    for (int base = 0; base < inputs; base += TILE) {
        int i = base + threadIdx.x;
        tile[threadIdx.x] = i < inputs ? in[sample * inputs + i] : 0.0f;
        __syncthreads();
        if (o < outputs)
            for (int k = 0; k < min(TILE, inputs - base); k++)
                sum = fmaf(weights[o * inputs + base + k], tile[k], sum);
        __syncthreads();
    }
    if (o >= outputs)
        return;
    out[sample * outputs + o] = activation == RECTIFIER ? fmaxf(sum, 0.0f) : __frcp_rn(1.0f + __expf(-sum));
}
