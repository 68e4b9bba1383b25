// Programs as tenants write them, with CUDA's runtime alone: apps NAME [SIZE]. Each makes its data,
// copies it to the GPU, computes, copies the results back, checks some of them against the CPU and
// prints a number that follows from all of them, which is the same wherever it runs. SIZE is how much
// it computes: with 100, the default, an H100 takes about a second.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define OK(call)                                                                                   \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "apps: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(e_));   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define RIGHT(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "apps: line %d: a wrong result: %s\n", __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int size_ = 100;

// scaled returns n at size 100, and at least 1; least is the same for sizes of data, which do not grow
// beyond that.
static int scaled(int n)
{
    int m = int((long long)n * size_ / 100);
    return m > 0 ? m : 1;
}

static int least(int n) { return size_ < 100 ? scaled(n) : n; }

static unsigned next(unsigned &state) { return state = state * 1664525u + 1013904223u; }

static std::vector<float> numbers(size_t n, unsigned seed)
{
    std::vector<float> v(n);
    for (auto &x : v)
        x = float(next(seed) >> 20) / 4096;
    return v;
}

template <class T> static T *device(size_t n)
{
    T *p;
    OK(cudaMalloc(&p, n * sizeof(T)));
    return p;
}

template <class T> static T *device(const std::vector<T> &v)
{
    T *p = device<T>(v.size());
    OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> static std::vector<T> fetch(const T *p, size_t n)
{
    std::vector<T> v(n);
    OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

// digest returns a number that follows from the bits of all values.
template <class T> static unsigned long long digest(const std::vector<T> &v)
{
    unsigned long long h = 14695981039346656037ull;
    for (const T &x : v) {
        unsigned bits;
        static_assert(sizeof bits == sizeof x, "values of 32 bits");
        memcpy(&bits, &x, sizeof bits);
        h = (h ^ bits) * 1099511628211ull;
    }
    return h;
}

// --- addition: large copies of ordinary memory

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

static unsigned long long addition()
{
    int n = least(1 << 25);
    auto a = numbers(n, 1), b = numbers(n, 2);
    float *pa = device(a), *pb = device(b), *pc = device<float>(n);
    for (int i = 0; i < scaled(3000); i++)
        add<<<(n + 255) / 256, 256>>>(pa, pb, pc, n);
    auto c = fetch(pc, n);
    for (int i = 0; i < n; i++)
        RIGHT(c[i] == a[i] + b[i]);
    return digest(c);
}

// --- product: of matrices, in tiles

constexpr int TILE = 16;

__global__ void product(const float *a, const float *b, float *c, int n)
{
    __shared__ float s[TILE][TILE], t[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        s[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += s[threadIdx.y][i] * t[i][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}

static unsigned long long matrices()
{
    int n = size_ >= 100 ? 2048 : 128;
    auto a = numbers(size_t(n) * n, 3), b = numbers(size_t(n) * n, 4);
    float *pa = device(a), *pb = device(b), *pc = device<float>(size_t(n) * n);
    for (int i = 0; i < scaled(300); i++)
        product<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(pa, pb, pc, n);
    auto c = fetch(pc, size_t(n) * n);
    for (int i = 0; i < 64; i++) {
        int y = (i * 37) % n, x = (i * 91) % n;
        double want = 0;
        for (int k = 0; k < n; k++)
            want += double(a[size_t(y) * n + k]) * b[size_t(k) * n + x];
        RIGHT(fabs(c[size_t(y) * n + x] - want) <= 1e-4 * want);
    }
    return digest(c);
}

// --- pipeline: pinned memory, two streams, copies beside kernels, events

__global__ void mix(unsigned *p, int n, int turns)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = p[i];
    for (int k = 0; k < turns; k++)
        v = v * 1664525u + 1013904223u;
    p[i] = v;
}

static unsigned long long pipeline()
{
    const int turns = 200;
    int n = least(1 << 23), chunks = scaled(200);
    unsigned *host[2], *gpu[2];
    cudaStream_t streams[2];
    cudaEvent_t done[2];
    for (int i = 0; i < 2; i++) {
        OK(cudaMallocHost(&host[i], size_t(n) * sizeof(unsigned)));
        gpu[i] = device<unsigned>(n);
        OK(cudaStreamCreate(&streams[i]));
        OK(cudaEventCreate(&done[i]));
        for (int k = 0; k < n; k++)
            host[i][k] = k * 2 + i;
    }
    for (int c = 0; c < chunks; c++) {
        int i = c & 1;
        OK(cudaMemcpyAsync(gpu[i], host[i], size_t(n) * sizeof(unsigned), cudaMemcpyHostToDevice, streams[i]));
        mix<<<(n + 255) / 256, 256, 0, streams[i]>>>(gpu[i], n, turns);
        OK(cudaMemcpyAsync(host[i], gpu[i], size_t(n) * sizeof(unsigned), cudaMemcpyDeviceToHost, streams[i]));
        OK(cudaEventRecord(done[i], streams[i]));
    }
    unsigned long long all = 0;
    for (int i = 0; i < 2; i++) {
        OK(cudaEventSynchronize(done[i]));
        for (int k = 0; k < n; k += n / 16 + 1) {
            unsigned want = k * 2 + i;
            for (int t = 0; t < turns * ((chunks + 1 - i) / 2); t++)
                next(want);
            RIGHT(host[i][k] == want);
        }
        all ^= digest(std::vector<unsigned>(host[i], host[i] + n)) + i;
    }
    return all;
}

// --- bodies: arithmetic, with shared memory

__global__ void forces(const float4 *at, float4 *to, int n)
{
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = at[i];
    float x = 0, y = 0, z = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        tile[threadIdx.x] = at[base + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < int(blockDim.x); k++) {
            float4 o = tile[k];
            float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float w = o.w * r * r * r;
            x += w * dx, y += w * dy, z += w * dz;
        }
        __syncthreads();
    }
    to[i] = make_float4(me.x + 1e-6f * x, me.y + 1e-6f * y, me.z + 1e-6f * z, me.w);
}

static unsigned long long bodies()
{
    int n = size_ >= 100 ? 1 << 15 : 1 << 10;
    auto v = numbers(size_t(n) * 4, 5);
    auto *a = reinterpret_cast<float4 *>(device(v)), *b = device<float4>(n);
    for (int i = 0; i < scaled(600); i++) {
        forces<<<n / 256, 256, 256 * sizeof(float4)>>>(a, b, n);
        std::swap(a, b);
    }
    auto out = fetch(reinterpret_cast<float *>(a), size_t(n) * 4);
    for (int i = 0; i < n; i++)
        RIGHT(out[4 * i + 3] == v[4 * i + 3] && std::isfinite(out[4 * i]));
    return digest(out);
}

// --- heat: many short kernels, one after another, replayed from a graph

__global__ void spread(const float *a, float *b, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n)
        return;
    bool edge = x == 0 || y == 0 || x == n - 1 || y == n - 1;
    size_t i = size_t(y) * n + x;
    b[i] = edge ? a[i] : 0.25f * (a[i - 1] + a[i + 1] + a[i - n] + a[i + n]);
}

static unsigned long long heat()
{
    int n = size_ >= 100 ? 2048 : 64;
    auto v = numbers(size_t(n) * n, 6);
    float *a = device(v), *b = device<float>(size_t(n) * n);
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    dim3 grid((n + 31) / 32, (n + 7) / 8), block(32, 8);
    for (int i = 0; i < 10; i++) {
        spread<<<grid, block, 0, s>>>(a, b, n);
        spread<<<grid, block, 0, s>>>(b, a, n);
    }
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&run, graph, 0));
    for (int i = 0; i < scaled(3000); i++)
        OK(cudaGraphLaunch(run, s));
    OK(cudaStreamSynchronize(s));
    auto out = fetch(a, size_t(n) * n);
    RIGHT(out[0] == v[0] && out.back() == v.back());
    for (float x : out)
        RIGHT(x >= 0 && x <= 1);
    return digest(out);
}

// --- histogram: atomic operations in shared and global memory

__global__ void count(const unsigned *in, unsigned *bins, int n)
{
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i] >> 24], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

static unsigned long long histogram()
{
    int n = least(1 << 25), times = scaled(5000);
    std::vector<unsigned> in(n), want(256);
    unsigned state = 7;
    for (auto &x : in)
        want[(x = next(state)) >> 24] += times;
    unsigned *p = device(in), *bins = device<unsigned>(256);
    OK(cudaMemset(bins, 0, 256 * sizeof(unsigned)));
    for (int i = 0; i < times; i++)
        count<<<1024, 256>>>(p, bins, n);
    auto out = fetch(bins, 256);
    RIGHT(out == want);
    return digest(out);
}

// --- requests: short kernels that are waited for one by one, with a small copy each way

static unsigned long long requests()
{
    const int n = 4096;
    unsigned *host, *p = device<unsigned>(n);
    OK(cudaMallocHost(&host, n * sizeof(unsigned)));
    for (int i = 0; i < n; i++)
        host[i] = i;
    int times = scaled(30000);
    for (int i = 0; i < times; i++) {
        OK(cudaMemcpyAsync(p, host, n * sizeof(unsigned), cudaMemcpyHostToDevice, 0));
        mix<<<n / 256, 256>>>(p, n, 1);
        OK(cudaMemcpyAsync(host, p, n * sizeof(unsigned), cudaMemcpyDeviceToHost, 0));
        OK(cudaStreamSynchronize(0));
    }
    for (int i = 0; i < n; i += 500) {
        unsigned want = i;
        for (int t = 0; t < times; t++)
            next(want);
        RIGHT(host[i] == want);
    }
    return digest(std::vector<unsigned>(host, host + n));
}

// --- launches: very many, queued

static unsigned long long launches()
{
    const int n = 1 << 14;
    std::vector<unsigned> v(n);
    for (int i = 0; i < n; i++)
        v[i] = i;
    unsigned *p = device(v);
    int times = scaled(400000);
    for (int i = 0; i < times; i++)
        mix<<<n / 256, 256>>>(p, n, 1);
    auto out = fetch(p, n);
    for (int i = 0; i < n; i += 1000) {
        unsigned want = i;
        for (int t = 0; t < times; t++)
            next(want);
        RIGHT(out[i] == want);
    }
    return digest(out);
}

static const struct {
    const char *name;
    unsigned long long (*run)();
} programs[] = {
    {"addition", addition}, {"matrices", matrices}, {"pipeline", pipeline}, {"bodies", bodies},
    {"heat", heat}, {"histogram", histogram}, {"requests", requests}, {"launches", launches},
};

int main(int argc, char **argv)
{
    if (argc > 2)
        size_ = atoi(argv[2]);
    for (auto &p : programs) {
        if (argc > 1 && !strcmp(argv[1], p.name)) {
            unsigned long long d = p.run();
            OK(cudaDeviceSynchronize());
            printf("%s %016llx\n", p.name, d);
            return 0;
        }
    }
    fprintf(stderr, "usage: apps NAME [SIZE], with one of");
    for (auto &p : programs)
        fprintf(stderr, " %s", p.name);
    fprintf(stderr, "\n");
    return 2;
}
