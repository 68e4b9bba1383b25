// Random numbers in kernels: the papers' numbers, the same on the GPU as on the CPU, sequences that are
// as far apart as they should be, and distributions with their moments.
#include <curand_kernel.h>

#include "rt.h"

static const int threads = 256, each = 32;

template <class S> __host__ __device__ static void draw(S *s, unsigned *out)
{
    for (int i = 0; i < each; i++)
        out[i] = curand(s);
}

template <class S> __global__ void numbers(unsigned *out)
{
    S s;
    int i = threadIdx.x;
    curand_init(1234, i, i * 37, &s);
    draw(&s, out + i * each);
}

// The GPU's numbers are the CPU's, and skips lead where that many numbers do.
template <class S> static void generator(int doublings)
{
    std::vector<unsigned> got(threads * each), want(each);
    unsigned *out;
    OK(cudaMalloc(&out, got.size() * sizeof(unsigned)));
    numbers<S><<<1, threads>>>(out);
    OK(cudaMemcpy(got.data(), out, got.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    OK(cudaFree(out));
    S s, t;
    for (int i = 0; i < threads; i += 51) {
        curand_init(1234, i, 0, &s);
        for (int j = 0; j < i * 37; j++)
            curand(&s);
        draw(&s, want.data());
        TRUE(memcmp(want.data(), &got[i * each], each * sizeof(unsigned)) == 0);
    }
    for (unsigned i = 1; i < got.size(); i++)
        TRUE(got[i] != got[i - 1]);
    for (unsigned n = 0; n < 900; n += 299) {
        curand_init(7, 0, 0, &s);
        curand_init(7, 0, n, &t);
        for (unsigned i = 0; i < n; i++)
            curand(&s);
        TRUE(curand(&s) == curand(&t) && curand(&s) == curand(&t));
    }
    curand_init(99, 3, 5, &s);
    curand_init(99, 2, 5, &t);
    for (int i = 0; i < 1 << doublings; i++)
        skipahead(1ull << 63, &t);
    for (int i = 0; i < 9; i++)
        TRUE(curand(&s) == curand(&t));
}

static void papers()
{
    curandStatePhilox4_32_10_t p;
    curand_init(0, 0, 0, &p);
    TRUE(curand(&p) == 0x6627e8d5 && curand(&p) == 0xe169c58d && curand(&p) == 0xbc57ac4c && curand(&p) == 0x9b00dbd8);
    curand_init(0x299f31d0a4093822, 0x0370734413198a2e, 0, &p);
    for (int i = 0; i < 4; i++) // the counter counts blocks of four
        skipahead(0x85a308d3243f6a88, &p);
    TRUE(curand(&p) == 0xd16cfe09 && curand(&p) == 0x94fdcceb && curand(&p) == 0x5001e420 && curand(&p) == 0x24126ea1);

    curandStateXORWOW_t x = {{123456789, 362436069, 521288629, 88675123, 5783321}, 6615241, {}};
    TRUE(curand(&x) == 246875399 && curand(&x) == 3690007200 && curand(&x) == 1264581005);

    curandStateMRG32k3a_t m = {{12345, 12345, 12345}, {12345, 12345, 12345}, {}};
    TRUE(curand(&m) == 545508614 && curand(&m) == 1368065475 && curand(&m) == 1327943824);
}

static const int kinds = 7;

template <class S> __global__ void distributions(double *out, int n)
{
    S s;
    curand_init(5, threadIdx.x, 0, &s);
    for (int i = 0; i < n; i++) {
        double *o = out + (threadIdx.x * n + i) * kinds;
        o[0] = curand_uniform(&s), o[1] = curand_uniform_double(&s);
        o[2] = curand_normal(&s), o[3] = curand_normal_double(&s);
        o[4] = log(curand_log_normal_double(&s, 0, 1));
        o[5] = curand_poisson(&s, 3), o[6] = curand_poisson(&s, 100);
    }
}

// Means and variances, within five standard errors.
template <class S> static void moments()
{
    const double mean[kinds] = {0.5, 0.5, 0, 0, 0, 3, 100}, variance[kinds] = {1 / 12.0, 1 / 12.0, 1, 1, 1, 3, 100};
    const int n = 64, all = 64 * n;
    std::vector<double> got(all * kinds);
    double *out;
    OK(cudaMalloc(&out, got.size() * sizeof(double)));
    distributions<S><<<1, 64>>>(out, n);
    OK(cudaMemcpy(got.data(), out, got.size() * sizeof(double), cudaMemcpyDeviceToHost));
    OK(cudaFree(out));
    for (int k = 0; k < kinds; k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < all; i++) {
            double v = got[i * kinds + k];
            TRUE(k > 1 || (v > 0 && v <= 1));
            sum += v - mean[k], squares += (v - mean[k]) * (v - mean[k]);
        }
        TRUE(fabs(sum / all) < 5 * sqrt(variance[k] / all));
        TRUE(fabs(squares / all / variance[k] - 1) < 5 * sqrt(3.0 / all));
    }
}

__global__ void fours(float *out)
{
    curandStatePhilox4_32_10_t s, t;
    curand_init(1, 2, 3, &s), curand_init(1, 2, 3, &t);
    float4 u = curand_uniform4(&s), v = curand_normal4(&s);
    out[0] = u.x == curand_uniform(&t) && u.y == curand_uniform(&t) && u.z == curand_uniform(&t) && u.w == curand_uniform(&t);
    out[1] = v.x == curand_normal(&t) && v.y == curand_normal(&t) && v.z == curand_normal(&t) && v.w == curand_normal(&t);
}

int main()
{
    papers();
    generator<curandState>(4);                // sequences are 2^67 numbers apart
    generator<curandStatePhilox4_32_10_t>(3); // 2^66
    generator<curandStateMRG32k3a_t>(13);     // 2^76
    moments<curandState>();
    moments<curandStatePhilox4_32_10_t>();
    moments<curandStateMRG32k3a_t>();
    float *out, got[2];
    OK(cudaMalloc(&out, sizeof got));
    fours<<<1, 1>>>(out);
    OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    OK(cudaFree(out));
    TRUE(got[0] == 1 && got[1] == 1);
    return right();
}
