// Floating point where rounding, saturation and special values show: one row of n
// results an operation, on inputs that include zeros, and in single precision
// subnormals, infinities and NaN.
extern "C" __global__ void rounding32(const float *x, const float *y, float *out, int *ints, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float a = x[i], b = y[i];
    int row = 0;
    auto put = [&](float value) { out[row++ * n + i] = value; };
    put(__fadd_rn(a, b));
    put(__fadd_rz(a, b));
    put(__fadd_ru(a, b));
    put(__fadd_rd(a, b));
    put(__fmul_rn(a, b));
    put(__fmul_rz(a, b));
    put(__fmul_ru(a, b));
    put(__fmul_rd(a, b));
    put(__fmaf_rn(a, b, a));
    put(__fmaf_rz(a, b, a));
    put(__fdiv_rn(a, b));
    put(__fsqrt_rn(a));
    put(__frcp_rn(b));
    put(__saturatef(a));
    put(fminf(a, b));
    put(fmaxf(a, b));
    put(rintf(a));
    put(floorf(a));
    put(ceilf(a));
    put(truncf(a));
    // PTX leaves open what becomes of a NaN's sign here.
    put(isnan(a) ? 0.0f : copysignf(a, b));
    put(isnan(b) ? 0.0f : fabsf(b));
    put(isnan(a) ? 0.0f : -a);
    row = 0;
    auto put_int = [&](int value) { ints[row++ * n + i] = value; };
    put_int(__float2int_rn(a));
    put_int(__float2int_rz(a));
    put_int(__float2int_ru(a));
    put_int(__float2int_rd(a));
    put_int(int(__float2uint_rz(a)));
    put_int(a < b);
    put_int(a == b);
    put_int(!(a >= b));
    put_int(isnan(a) | isinf(a) << 1 | signbit(a) << 2);
}

extern "C" __global__ void rounding64(const double *x, const double *y, double *out, float *narrow, long long *ints,
                                      int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double a = x[i], b = y[i];
    int row = 0;
    auto put = [&](double value) { out[row++ * n + i] = value; };
    put(__dadd_rn(a, b));
    put(__dmul_rn(a, b));
    put(__fma_rn(a, b, a));
    put(__ddiv_rn(a, b));
    put(__dsqrt_rn(fabs(a)));
    put(__dadd_rz(a, b));
    put(__dmul_ru(a, b));
    put(fmin(a, b));
    put(fmax(a, b));
    put(floor(a));
    put(rint(b));
    put(double(float(b)));
    row = 0;
    auto put_narrow = [&](float value) { narrow[row++ * n + i] = value; };
    put_narrow(__double2float_rn(a));
    put_narrow(__double2float_rz(a));
    put_narrow(__double2float_ru(a));
    put_narrow(__ll2float_rn((long long)i * 0x123456789abll));
    ints[0 * n + i] = __double2ll_rn(a);
    ints[1 * n + i] = __double2ll_rz(b);
    ints[2 * n + i] = (long long)__double2ull_rz(a);
    ints[3 * n + i] = __double_as_longlong(a);
}
