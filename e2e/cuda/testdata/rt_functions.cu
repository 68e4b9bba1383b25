// C++'s overloads of mathematical functions for floats, with and without std::, and loads and stores
// of vectors with cache operators, against the host's.
#include "rt.h"

#define ONE(op)                                                                                    \
    op(acosh) op(asinh) op(atanh) op(cbrt) op(erf) op(erfc) op(exp2) op(expm1) op(lgamma) op(log1p) op(log2) \
    op(logb) op(nearbyint) op(rint) op(round) op(tgamma) op(trunc) op(acos) op(asin) op(atan) op(ceil) op(cos) \
    op(cosh) op(exp) op(fabs) op(floor) op(log) op(log10) op(sin) op(sinh) op(sqrt) op(tan) op(tanh) op(abs)
#define TWO(op)                                                                                    \
    op(copysign) op(fdim) op(fmax) op(fmin) op(hypot) op(nextafter) op(remainder) op(atan2) op(fmod) op(pow)
#define WHOLE(op) op(ilogb) op(lrint) op(lround) op(llrint) op(llround)

// The functions with their values in order; k counts them.
template <class F> __host__ __device__ static inline void each(float x, float y, F put)
{
#define PUT(f) put(f(x));
#define PUT_STD(f) put(std::f(x));
#define PUT2(f) put(f(x, y));
#define PUT2_STD(f) put(std::f(x, y));
    ONE(PUT) ONE(PUT_STD) TWO(PUT2) TWO(PUT2_STD) WHOLE(PUT) WHOLE(PUT_STD)
    int q = 0;
    put(fma(x, y, 1.5f)), put(std::fma(x, y, 1.5f));
    put(scalbn(x, 3)), put(scalbln(x, -2l)), put(remquo(x, y, &q)), put((float)(q & 7));
    put(fmax(x, 2.0)), put(fmin(1, y)), put(pow(x, 2));
}

static const int slots = 128;

__global__ void compute(const float *in, double *out, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    double *o = out + i * slots;
    each(in[i], in[n - 1 - i], [&](auto v) { static_assert(sizeof v <= 8, ""); *o++ = (double)v; });
    *o = isnan(nanf("")) && isnan(nan(""));
}

template <class T> __global__ void vectors(const T *in, T *out)
{
    T a = __ldcg(in), b = __ldca(in + 1), c = __ldcs(in + 2), d = __ldcv(in + 3);
    __stcg(out, a), __stwb(out + 1, b), __stcs(out + 2, c), __stwt(out + 3, d);
}

template <class T> static void copied()
{
    unsigned char bytes[4 * sizeof(T)], got[sizeof bytes];
    T *in, *out;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    OK(cudaMalloc(&in, sizeof bytes));
    OK(cudaMalloc(&out, sizeof bytes));
    OK(cudaMemcpy(in, bytes, sizeof bytes, cudaMemcpyHostToDevice));
    vectors<<<1, 1>>>(in, out);
    OK(cudaGetLastError());
    OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(memcmp(bytes, got, sizeof got) == 0);
}

int main()
{
    const int n = 24;
    std::vector<float> in(n);
    std::vector<double> got(n * slots), want;
    for (int i = 0; i < n; i++)
        in[i] = (i - 11.5f) * 0.43f;
    float *d;
    double *out;
    OK(cudaMalloc(&d, n * sizeof(float)));
    OK(cudaMalloc(&out, got.size() * sizeof(double)));
    OK(cudaMemcpy(d, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    compute<<<1, 32>>>(d, out, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(got.data(), out, got.size() * sizeof(double), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        want.clear();
        each(in[i], in[n - 1 - i], [&](auto v) { want.push_back((double)v); });
        TRUE(want.size() < slots && got[i * slots + want.size()] == 1);
        for (size_t k = 0; k < want.size(); k++) {
            double g = got[i * slots + k], w = want[k];
            if (!(g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= 4e-6 * fabs(w) + 1e-6)) {
                fprintf(stderr, "x %g, function %zu: got %g, want %g\n", in[i], k, g, w);
                return 1;
            }
        }
    }
    copied<float4>();
    copied<uchar4>();
    copied<ulonglong2>();
    copied<int2>();
    return right();
}
