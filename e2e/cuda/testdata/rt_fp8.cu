// Numbers of 8 bits: conversions on the GPU and the CPU, against the values that the format has.
#include <cuda_fp8.h>

#include "rt.h"

#include <limits>

// The value of one, from the definition of its format.
static double value_of(unsigned char x, bool e4m3)
{
    int fraction = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, e = (x & 0x7f) >> fraction, f = x & ((1 << fraction) - 1);
    double v = e ? ldexp((1 << fraction) + f, e - bias - fraction) : ldexp(f, 1 - bias - fraction);
    if (e4m3 ? (x & 0x7f) == 0x7f : (x & 0x7f) > 0x7c)
        v = std::numeric_limits<double>::quiet_NaN();
    else if (!e4m3 && (x & 0x7f) == 0x7c)
        v = std::numeric_limits<double>::infinity();
    return x & 0x80 ? -v : v;
}

// The nearest one, by comparing with all.
static unsigned char nearest(double v, bool e4m3, bool saturate)
{
    unsigned char sign = std::signbit(v) ? 0x80 : 0, best = 0;
    double a = fabs(v), least = -1;
    if (v != v)
        return 0x7f;
    if (e4m3 ? a > 464 : a >= 61440) // of a tie with the number that the format lacks, 448 is the even one
        return sign | (saturate ? (e4m3 ? 0x7e : 0x7b) : (e4m3 ? 0x7f : 0x7c));
    for (unsigned x = 0; x < 0x7fu; x++) {
        double d = fabs(value_of(x, e4m3) - a);
        if (std::isfinite(d) && (least < 0 || d < least || (d == least && x % 2 == 0))) {
            least = d;
            best = x;
        }
    }
    return sign | best;
}

struct converted {
    unsigned char e4[2], e5[2], half4, half5, bf4, bf5;
    unsigned short two4, two5;
    unsigned four4, four5;
};

__host__ __device__ static converted convert(double d)
{
    converted c;
    float f = (float)d;
    for (int s = 0; s < 2; s++) {
        c.e4[s] = __nv_cvt_double_to_fp8(d, s ? __NV_SATFINITE : __NV_NOSAT, __NV_E4M3);
        c.e5[s] = __nv_cvt_double_to_fp8(d, s ? __NV_SATFINITE : __NV_NOSAT, __NV_E5M2);
    }
    c.half4 = __nv_fp8_e4m3(__half(f)).__x;
    c.half5 = __nv_fp8_e5m2(__half(f)).__x;
    c.bf4 = __nv_fp8_e4m3(__nv_bfloat16(f)).__x;
    c.bf5 = __nv_fp8_e5m2(__nv_bfloat16(f)).__x;
    c.two4 = __nv_fp8x2_e4m3(make_float2(f, -f)).__x;
    c.two5 = __nv_fp8x2_e5m2(make_double2(d, -d)).__x;
    c.four4 = __nv_fp8x4_e4m3(make_float4(f, 1, -f, 2)).__x;
    c.four5 = __nv_fp8x4_e5m2(make_float4(f, 1, -f, 2)).__x;
    return c;
}

__global__ void convert_all(const double *in, converted *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = convert(in[i]);
}

struct values {
    float a, b;
    __half ha, hb;
    float2 two;
    float4 four;
    int whole;
    unsigned char small;
};

__host__ __device__ static values read(unsigned char x)
{
    __nv_fp8_e4m3 a;
    __nv_fp8_e5m2 b;
    __nv_fp8x2_e4m3 two;
    __nv_fp8x4_e5m2 four;
    a.__x = b.__x = x;
    two.__x = (unsigned short)(x | 0x3800);
    four.__x = 0x3c000000u | x << 8;
    return values{(float)a, (float)b, (__half)a, (__half)b, (float2)two, (float4)four, (int)b, (unsigned char)a};
}

__global__ void read_all(values *out) { out[threadIdx.x] = read(threadIdx.x); }

static void check(double d, const converted &c)
{
    float f = (float)d;
    double h = (float)__half(f), b = (float)__nv_bfloat16(f);
    for (int s = 0; s < 2; s++)
        TRUE(c.e4[s] == nearest(d, true, s) && c.e5[s] == nearest(d, false, s));
    TRUE(c.half4 == nearest(h, true, true) && c.half5 == nearest(h, false, true));
    TRUE(c.bf4 == nearest(b, true, true) && c.bf5 == nearest(b, false, true));
    TRUE(c.two4 == (nearest(f, true, true) | nearest(-f, true, true) << 8));
    TRUE(c.two5 == (nearest(d, false, true) | nearest(-d, false, true) << 8));
    TRUE(c.four4 == (nearest(f, true, true) | 0x38u << 8 | (unsigned)nearest(-f, true, true) << 16 | 0x40u << 24));
    TRUE(c.four5 == (nearest(f, false, true) | 0x3cu << 8 | (unsigned)nearest(-f, false, true) << 16 | 0x40u << 24));
}

static bool same(double a, double b) { return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b)); }

static void check(unsigned char x, const values &v)
{
    double a = value_of(x, true), b = value_of(x, false);
    TRUE(same(v.a, a) && same(v.b, b) && same((float)v.ha, a) && same((float)v.hb, b));
    TRUE(same(v.two.x, a) && v.two.y == 1 && v.four.x == 0 && same(v.four.y, b) && v.four.z == 0 && v.four.w == 1);
    TRUE(v.whole == (b != b ? 0 : std::isinf(b) ? (b < 0 ? INT_MIN : INT_MAX) : (int)b));
    TRUE(v.small == (a != a || a <= 0 ? 0 : a >= 255 ? 255 : (int)a));
}

int main()
{
    std::vector<double> in = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-300, 4e-324, 1e300, 448, 463.9, 464, 465, 480, 57344, 61439, 61440, 65536};
    for (int kind = 0; kind < 2; kind++) // all of them, the ties between two, and what is next to these
        for (int x = 0; x < 256; x++) {
            double a = value_of(x, kind), b = value_of(x == 255 ? 255 : x + 1, kind);
            for (double v : {a, (a + b) / 2})
                for (double n : {v, nextafter(v, 1e9), nextafter(v, -1e9)})
                    in.push_back(n);
        }
    for (int i = 0; i < 3000; i++)
        in.push_back(ldexp((rand() % 65536) / 32768.0 - 1, rand() % 44 - 24));
    int n = (int)in.size();
    double *d;
    converted *out;
    values *v;
    OK(cudaMalloc(&d, n * sizeof *d));
    OK(cudaMalloc(&out, n * sizeof *out));
    OK(cudaMalloc(&v, 256 * sizeof *v));
    OK(cudaMemcpy(d, in.data(), n * sizeof *d, cudaMemcpyHostToDevice));
    convert_all<<<(n + 127) / 128, 128>>>(d, out, n);
    read_all<<<1, 256>>>(v);
    std::vector<converted> got(n);
    std::vector<values> read_back(256);
    OK(cudaMemcpy(got.data(), out, n * sizeof *out, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(read_back.data(), v, 256 * sizeof *v, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        check(in[i], got[i]);
        check(in[i], convert(in[i]));
    }
    for (int x = 0; x < 256; x++) {
        check((unsigned char)x, read_back[x]);
        check((unsigned char)x, read((unsigned char)x));
    }
    TRUE((float)__nv_fp8_e4m3(7) == 7 && (float)__nv_fp8_e5m2(-9ll) == -8 && (float)__nv_fp8_e4m3(1000u) == 448);
    return right();
}
