// A tenant of `vgpud demo --cuda`: a CUDA program that keeps a GPU busy, checks its results and says
// twice a second what it has done, as a line of JSON. Nothing in it knows of vgpud.
//
//   tenant WORK [WORKERS [PAUSE_US [PRIORITY]]]
//
// WORK is product, sum, add, spin or blink. Each worker is a thread with a stream. With a pause it
// launches one kernel at a time, and the time of each from launch to end is reported.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// c = a · b, of N × N matrices, in tiles.
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

// out[block] = the sum of the block's part of in.
__global__ void sum(const int *in, int *out, int n)
{
    __shared__ int s[256];
    int mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += in[i];
    s[threadIdx.x] = mine;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if ((int)threadIdx.x < d)
            s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

// out[i] = i after so many steps of a generator of random numbers.
__global__ void step(unsigned *out, int steps)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
    for (int k = 0; k < steps; k++)
        v = v * 1664525u + 1013904223u;
    out[i] = v;
}

[[noreturn]] static void fail(const char *what, cudaError_t e)
{
    fprintf(stderr, "tenant: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        cudaError_t e = call;                                                                      \
        if (e != cudaSuccess)                                                                      \
            fail(#call, e);                                                                        \
    } while (0)

// Memory on the GPU.
template <class T> struct Buffer {
    T *p;
    size_t n;
    explicit Buffer(size_t n) : n(n) { OK(cudaMalloc(&p, n * sizeof(T))); }
    explicit Buffer(const std::vector<T> &v) : Buffer(v.size())
    {
        OK(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> fetch(cudaStream_t s) const
    {
        std::vector<T> v(n);
        OK(cudaMemcpyAsync(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost, s));
        OK(cudaStreamSynchronize(s));
        return v;
    }
};

// A kernel with its data: launch, and the results it must have.
struct Work {
    int repeat = 1; // launches between two checks
    virtual void launch(cudaStream_t) = 0;
    virtual bool right(cudaStream_t) = 0;
    virtual ~Work() = default;
};

struct Product : Work {
    static constexpr int N = 128;
    std::vector<float> want = std::vector<float>(N * N);
    Buffer<float> a, b, c{N * N};

    static std::vector<float> matrix(unsigned seed)
    {
        std::vector<float> m(N * N);
        for (auto &v : m) // small whole numbers: sums are exact in any order
            v = float((seed = seed * 1664525u + 1013904223u) >> 29);
        return m;
    }
    explicit Product(unsigned seed) : a(matrix(seed)), b(matrix(seed + 1))
    {
        auto x = matrix(seed), y = matrix(seed + 1);
        for (int i = 0; i < N; i++)
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++)
                    want[i * N + j] += x[i * N + k] * y[k * N + j];
        repeat = 4;
    }
    void launch(cudaStream_t s) override
    {
        product<<<dim3(N / TILE, N / TILE), dim3(TILE, TILE), 0, s>>>(a.p, b.p, c.p, N);
    }
    bool right(cudaStream_t s) override { return c.fetch(s) == want; }
};

struct Sum : Work {
    static constexpr int N = 1 << 14, BLOCKS = 16;
    int want = 0;
    Buffer<int> in, out{BLOCKS};

    static std::vector<int> numbers(unsigned seed)
    {
        std::vector<int> v(N);
        for (int i = 0; i < N; i++)
            v[i] = int(seed + 7 * i) % 1000;
        return v;
    }
    explicit Sum(unsigned seed) : in(numbers(seed))
    {
        for (int v : numbers(seed))
            want += v;
        repeat = 8;
    }
    void launch(cudaStream_t s) override { sum<<<BLOCKS, 256, 0, s>>>(in.p, out.p, N); }
    bool right(cudaStream_t s) override
    {
        int got = 0;
        for (int v : out.fetch(s))
            got += v;
        return got == want;
    }
};

struct Add : Work {
    static constexpr int N = 4096;
    std::vector<float> want = std::vector<float>(N);
    Buffer<float> a, b, c{N};

    static std::vector<float> numbers(float first)
    {
        std::vector<float> v(N);
        for (int i = 0; i < N; i++)
            v[i] = first + i;
        return v;
    }
    explicit Add(unsigned seed) : a(numbers(float(seed))), b(numbers(0.5f))
    {
        for (int i = 0; i < N; i++)
            want[i] = float(seed) + i + (0.5f + i);
        repeat = 16;
    }
    void launch(cudaStream_t s) override { add<<<N / 256, 256, 0, s>>>(a.p, b.p, c.p, N); }
    bool right(cudaStream_t s) override { return c.fetch(s) == want; }
};

// Many blocks that each take a while, of which an SM holds few at a time, or a few short ones.
struct Spin : Work {
    int blocks, steps;
    size_t shared;
    std::vector<unsigned> want;
    Buffer<unsigned> out;

    Spin(int blocks, int steps, size_t shared)
        : blocks(blocks), steps(steps), shared(shared), want(blocks * 32), out(blocks * 32)
    {
        for (unsigned i = 0; i < want.size(); i++) {
            unsigned v = i;
            for (int k = 0; k < steps; k++)
                v = v * 1664525u + 1013904223u;
            want[i] = v;
        }
    }
    void launch(cudaStream_t s) override { step<<<blocks, 32, shared, s>>>(out.p, steps); }
    bool right(cudaStream_t s) override { return out.fetch(s) == want; }
};

static Work *work(const std::string &name, unsigned seed)
{
    if (name == "product")
        return new Product(seed);
    if (name == "sum")
        return new Sum(seed);
    if (name == "add")
        return new Add(seed);
    if (name == "spin")
        return new Spin(192, 2000, 48 << 10);
    if (name == "blink")
        return new Spin(4, 500, 0);
    fprintf(stderr, "tenant: no work %s: product, sum, add, spin or blink\n", name.c_str());
    exit(2);
}

// What all workers have done.
static std::atomic<unsigned long> kernels, cases, wrong;
static std::atomic<bool> ending;

// The launches that are pending, and the time with at least four of them.
static struct Backlog {
    std::mutex m;
    int pending = 0;
    Clock::time_point since;
    double full = 0;
    void change(int by)
    {
        std::lock_guard<std::mutex> lock(m);
        auto now = Clock::now();
        if (pending >= 4)
            full += seconds(now - since);
        pending += by;
        since = now;
    }
} backlog;

static struct {
    std::mutex m;
    std::string list; // milliseconds, behind commas
    int n = 0;
} latencies;

static void run(const std::string &name, unsigned seed, int pause, int priority, std::atomic<int> &ready, std::atomic<bool> &go)
{
    cudaStream_t s;
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority));
    Work *w = work(name, seed);
    w->launch(s); // loads the kernel
    if (!w->right(s))
        wrong++;
    ready++;
    while (!go)
        std::this_thread::yield();
    while (!ending) {
        if (pause > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(pause));
        auto begin = Clock::now();
        int n = pause > 0 ? 1 : w->repeat;
        backlog.change(n);
        for (int i = 0; i < n; i++)
            w->launch(s);
        OK(cudaGetLastError());
        OK(cudaStreamSynchronize(s));
        backlog.change(-n);
        kernels += n;
        if (pause > 0) {
            std::lock_guard<std::mutex> lock(latencies.m);
            if (latencies.n++ < 512)
                latencies.list += "," + std::to_string(1e3 * seconds(Clock::now() - begin));
        }
        if (!w->right(s))
            wrong++;
        cases++;
    }
}

static void report(Clock::time_point begin, bool ready)
{
    std::string list;
    {
        std::lock_guard<std::mutex> lock(latencies.m);
        list.swap(latencies.list);
        latencies.n = 0;
    }
    backlog.change(0);
    printf("{\"ready\":%s,\"kernels\":%lu,\"cases\":%lu,\"wrong\":%lu,\"busy_seconds\":%f,\"backlogged_seconds\":%f,\"latencies_ms\":[%s]}\n",
        ready ? "true" : "false", kernels.load(), cases.load(), wrong.load(), seconds(Clock::now() - begin), backlog.full,
        list.empty() ? "" : list.c_str() + 1);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: tenant WORK [WORKERS [PAUSE_US [PRIORITY]]]\n");
        return 2;
    }
    int workers = argc > 2 ? atoi(argv[2]) : 1, pause = argc > 3 ? atoi(argv[3]) : 0, priority = argc > 4 ? atoi(argv[4]) : 0;
    signal(SIGTERM, [](int) { ending = true; });
    OK(cudaFree(nullptr));
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < workers; i++)
        threads.emplace_back(run, argv[1], 1 + i, pause, priority, std::ref(ready), std::ref(go));
    while (ready < workers)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto begin = Clock::now();
    report(begin, true);
    go = true;
    while (!ending) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        report(begin, false);
    }
    for (auto &t : threads)
        t.join();
    report(begin, false);
    return wrong ? 1 : 0;
}
