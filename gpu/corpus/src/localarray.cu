// Arrays of a thread's own, indexed by what it reads: they live in local memory.

// The median of each window of nine, by insertion sort.
extern "C" __global__ void median9(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int window[9];
    for (int k = 0; k < 9; k++)
        window[k] = in[min(max(i + k - 4, 0), n - 1)];
    for (int k = 1; k < 9; k++) {
        int value = window[k], at = k;
        while (at > 0 && window[at - 1] > value) {
            window[at] = window[at - 1];
            at--;
        }
        window[at] = value;
    }
    out[i] = window[4];
}

// A machine with a stack: numbers push themselves, operators take two.
extern "C" __global__ void postfix(const short *programs, int length, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned stack[32];
    int top = 0;
    for (int k = 0; k < length; k++) {
        int token = programs[i * length + k];
        if (token >= 0) {
            stack[top++] = token;
            continue;
        }
        unsigned b = stack[--top], a = stack[--top];
        stack[top++] = token == -1 ? a + b : token == -2 ? a - b : a * b;
    }
    out[i] = stack[0];
}
