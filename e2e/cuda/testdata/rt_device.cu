// What device code calls: atomics, warp functions, votes, mathematical functions, malloc.
#include "rt.h"

struct results {
    int sum, most, least, ors;
    unsigned long long wide;
    double precise;
    float exact;
    unsigned ballots, matches, inc;
    int cas, any, all, count, reduced, sub;
};

__global__ void operations(results *r)
{
    int t = threadIdx.x;
    atomicAdd(&r->sum, t);
    atomicMax(&r->most, t);
    atomicMin(&r->least, -t);
    atomicOr(&r->ors, 1 << (t & 7));
    atomicAdd(&r->wide, 1ull << 33);
    atomicAdd(&r->precise, 0.5);
    atomicAdd(&r->exact, 0.25f);
    atomicInc(&r->inc, 1000);
    atomicSub(&r->sub, 2);
    int old = r->cas, assumed;
    do {
        assumed = old;
        old = atomicCAS(&r->cas, assumed, assumed + 3);
    } while (old != assumed);
    if (t < 32) {
        unsigned b = __ballot_sync(0xffffffff, t % 3 == 0);
        int up = __shfl_up_sync(0xffffffff, t, 1), down = __shfl_down_sync(0xffffffff, t, 2);
        double wide = __shfl_sync(0xffffffff, t * 1.5, 4);
        unsigned m = __match_any_sync(0xffffffff, t / 8);
        int red = __reduce_add_sync(0xffffffff, t);
        if (t == 9) {
            r->ballots = b;
            r->any = __popc(b) + up + down + (int)wide;
            r->matches = m;
            r->reduced = red;
        }
    }
    int c = __syncthreads_count(t & 1), a = __syncthreads_and(t >= 0);
    if (t == 0) {
        r->count = c;
        r->all = a;
    }
}

__global__ void functions(const double *x, double *d, float *f, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double v = x[i];
    float s = (float)v;
    double *o = d + i * 12;
    o[0] = exp(v), o[1] = log(fabs(v)), o[2] = sin(v), o[3] = cos(v), o[4] = tan(v), o[5] = pow(fabs(v), 1.7);
    o[6] = atan2(v, 2.0), o[7] = cbrt(v), o[8] = erf(v), o[9] = tgamma(fabs(v) + 0.5), o[10] = fmod(v, 0.7), o[11] = hypot(v, 3.0);
    float *q = f + i * 12;
    q[0] = expf(s), q[1] = logf(fabsf(s)), q[2] = sinf(s), q[3] = cosf(s), q[4] = sqrtf(fabsf(s)), q[5] = powf(fabsf(s), 1.7f);
    q[6] = floorf(s), q[7] = roundf(s), q[8] = std::exp(s), q[9] = max(s, 0.5f), q[10] = tanhf(s), q[11] = rsqrtf(fabsf(s));
}

__global__ void bits(unsigned *o, unsigned v, unsigned long long w)
{
    o[0] = __popc(v), o[1] = __clz(v), o[2] = __brev(v), o[3] = __ffs(v), o[4] = __byte_perm(v, 0x11223344, 0x5140);
    o[5] = __umulhi(v, v), o[6] = __popcll(w), o[7] = __clzll(w), o[8] = __float_as_uint(1.5f), o[9] = __float2int_rn(2.5f);
    o[10] = __double2int_rz(-3.7), o[11] = (unsigned)__dp4a(0x01020304, 0x01010101, 5), o[12] = __funnelshift_l(v, 0xff, 4);
}

__global__ void heap(int **p, int n)
{
    int *q = (int *)malloc(n * sizeof(int));
    for (int i = 0; q && i < n; i++)
        q[i] = i * (int)threadIdx.x;
    p[threadIdx.x] = q;
}
__global__ void drain(int **p, int *sums, int n)
{
    int s = 0;
    for (int i = 0; i < n; i++)
        s += p[threadIdx.x][i];
    free(p[threadIdx.x]);
    sums[threadIdx.x] = s;
}

static bool near(double got, double want, double relative) { return std::fabs(got - want) <= relative * std::fabs(want) + 1e-300; }

// Virtual functions, of objects that the device made.
struct shape {
    __device__ __noinline__ shape() {} // needs the table of the abstract class
    __device__ virtual ~shape() {}
    __device__ virtual int area(int scale) const = 0;
};
struct square : shape {
    int side;
    __device__ square(int s) : side(s) {}
    __device__ int area(int scale) const override { return side * side * scale; }
};
struct strip : shape {
    int length;
    __device__ strip(int l) : length(l) {}
    __device__ int area(int scale) const override { return length * scale; }
};

__global__ void virtuals(shape **shapes, int *out)
{
    int i = threadIdx.x;
    if (i % 2)
        shapes[i] = new square(i);
    else
        shapes[i] = new strip(i);
    __syncthreads();
    out[i] = shapes[blockDim.x - 1 - i]->area(3);
    __syncthreads();
    delete shapes[i];
}

int main()
{
    results host = {}, *r;
    OK(cudaMalloc(&r, sizeof *r));
    OK(cudaMemset(r, 0, sizeof *r));
    operations<<<1, 64>>>(r);
    OK(cudaMemcpy(&host, r, sizeof host, cudaMemcpyDeviceToHost));
    TRUE(host.sum == 2016 && host.most == 63 && host.least == -63 && host.ors == 255);
    TRUE(host.wide == 64ull << 33 && host.precise == 32 && host.exact == 16 && host.inc == 64 && host.sub == -128);
    TRUE(host.cas == 192 && host.count == 32 && host.all != 0);
    TRUE(host.ballots == 0x49249249 && host.any == 11 + 8 + 11 + 6);
    TRUE(host.matches == 0xff00);
    TRUE(host.reduced == 496);

    const int n = 300;
    std::vector<double> x(n), d(n * 12);
    std::vector<float> f(n * 12);
    for (int i = 0; i < n; i++)
        x[i] = (i - 150) * 0.093 + 0.001;
    double *dx, *dd;
    float *df;
    OK(cudaMalloc(&dx, n * sizeof(double)));
    OK(cudaMalloc(&dd, n * 12 * sizeof(double)));
    OK(cudaMalloc(&df, n * 12 * sizeof(float)));
    OK(cudaMemcpy(dx, x.data(), n * sizeof(double), cudaMemcpyHostToDevice));
    functions<<<(n + 63) / 64, 64>>>(dx, dd, df, n);
    OK(cudaMemcpy(d.data(), dd, n * 12 * sizeof(double), cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(f.data(), df, n * 12 * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        double v = x[i];
        float s = (float)v;
        const double want[] = {exp(v), log(fabs(v)), sin(v), cos(v), tan(v), pow(fabs(v), 1.7), atan2(v, 2.0), cbrt(v),
            erf(v), tgamma(fabs(v) + 0.5), fmod(v, 0.7), hypot(v, 3.0)};
        const double single[] = {exp((double)s), log(fabs((double)s)), sin((double)s), cos((double)s), sqrt(fabs((double)s)),
            pow(fabs((double)s), (double)1.7f), floor(s), round(s), exp((double)s), fmax(s, 0.5f), tanh((double)s), 1 / sqrt(fabs((double)s))};
        for (int k = 0; k < 12; k++) {
            TRUE(near(d[i * 12 + k], want[k], 2e-14));
            TRUE(near(f[i * 12 + k], single[k], 1e-6));
        }
    }

    unsigned *o, got[13];
    OK(cudaMalloc(&o, sizeof got));
    bits<<<1, 1>>>(o, 0x0f0f1234, 0x00ff000000000001ull);
    OK(cudaMemcpy(got, o, sizeof got, cudaMemcpyDeviceToHost));
    const unsigned v = 0x0f0f1234;
    const unsigned expected[] = {13, 4, 0x2c48f0f0, 3, 0x33124434, (unsigned)((unsigned long long)v * v >> 32), 9, 8,
        0x3fc00000, 2, (unsigned)-3, 15, 0xff0};
    for (int i = 0; i < 13; i++)
        TRUE(got[i] == expected[i]);

    int **p, *sums, host_sums[8];
    OK(cudaMalloc(&p, 8 * sizeof *p));
    OK(cudaMalloc(&sums, sizeof host_sums));
    heap<<<1, 8>>>(p, 100);
    drain<<<1, 8>>>(p, sums, 100);
    OK(cudaMemcpy(host_sums, sums, sizeof host_sums, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++)
        TRUE(host_sums[i] == 4950 * i);
    shape **shapes;
    int *areas, found[64];
    OK(cudaMalloc(&shapes, 64 * sizeof *shapes));
    OK(cudaMalloc(&areas, sizeof found));
    virtuals<<<1, 64>>>(shapes, areas);
    OK(cudaGetLastError());
    OK(cudaMemcpy(found, areas, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        TRUE(found[i] == 3 * (63 - i) * (i % 2 ? 1 : 63 - i));
    return right();
}
