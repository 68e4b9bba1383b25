// Measures transformed kernels on a real GPU, through CUDA's driver interface:
//
//     runner DIR RUNS EVICTIONS [WORD] > table
//
// reads the files DIR/{vecadd,stencil,matmul,nbody}.ptx that exist, which `vgpuctl ptx transform` made.
// It prints for each kernel and form: the median time of RUNS runs, the overhead over
// the original's, the median and the 90th percentile of the latency of EVICTIONS
// evictions at random moments (from writing the word, by a copy on a stream of its
// own, until the host sees the kernel's end), the number of launches that the evicted
// run took in all, and whether all results equal the original's, bit for bit.
//
// WORD is where the transformed kernels read the evict word: device (GPU memory, the
// default), host, or proxy. The latter two, and reads of the word by all threads, are
// the papers' ways; then only the forms that the papers have are measured.
//
// The layout of the appended argument and of the control block is package abi's
// (mediator/vgpu/abi/preempt.go).
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#define CHECK(call)                                                        \
    do {                                                                   \
        CUresult result = (call);                                          \
        if (result != CUDA_SUCCESS) {                                      \
            const char *text = "";                                         \
            cuGetErrorString(result, &text);                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static double now() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// abi.PreemptArgs.
struct Args {
    uint64_t control, list, skipped;
    uint32_t first, count, tasks, grid[3], group, every, capacity, flags;
    uint64_t word;
    uint32_t zero[6];
};
static_assert(sizeof(Args) == 96, "the appended parameter");

enum { EVICT = 0x000, NEXT = 0x080, SKIPPED = 0x180, CONTROL = 0x280 };

struct Form {
    const char *name, *suffix;
    uint32_t group;
    bool persistent, single;
    uint32_t every;
};

static const Form forms[] = {
    {"single", "__vgpud_single", 1, false, true, 1},
    {"coarse 8", "__vgpud_coarse", 8, false, false, 1},
    {"coarse 32", "__vgpud_coarse", 32, false, false, 1},
    {"persistent 1", "__vgpud_persist", 1, true, false, 1},
    {"persistent 4", "__vgpud_persist", 4, true, false, 1},
    {"persistent 16", "__vgpud_persist", 16, true, false, 1},
};

// The papers' forms, measured if the word is read in one of the papers' ways.
static const Form papers[] = {
    {"single", "__vgpud_single", 1, false, true, 1},
    {"persistent 1", "__vgpud_persist", 1, true, false, 1},
    {"each 64th", "__vgpud_persist", 1, true, false, 64},
};

struct Kernel {
    const char *file, *entry;
    uint32_t grid[3], block[3];
    std::vector<size_t> buffers;  // bytes; the last is the output
    std::vector<uint64_t> values; // after the buffers, 4 bytes each
};

static CUstream work, side;
static CUdeviceptr control, list, skipped;
static uint32_t *word;  // pinned: what is copied to the control block, or read by the kernels
static bool hosted;     // whether they do, or a proxy
static std::mt19937_64 random_bits(1);

static std::string slurp(const std::string &path) {
    std::ifstream f(path, std::ios::binary);
    if (!f) {
        perror(path.c_str());
        exit(1);
    }
    return std::string(std::istreambuf_iterator<char>(f), {});
}

struct Bench {
    const Kernel &k;
    CUmodule module;
    std::vector<CUdeviceptr> at;
    std::vector<char> want, got;

    explicit Bench(const Kernel &k, const std::string &dir) : k(k) {
        std::string text = slurp(dir + "/" + k.file);
        char log[4096] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)sizeof log};
        if (cuModuleLoadDataEx(&module, text.c_str(), 2, options, values) != CUDA_SUCCESS) {
            fprintf(stderr, "%s: %s\n", k.file, log);
            exit(1);
        }
        for (size_t bytes : k.buffers) {
            CUdeviceptr p;
            CHECK(cuMemAlloc(&p, bytes));
            at.push_back(p);
        }
        // Inputs of about 1, not all alike.
        for (size_t i = 0; i + 1 < at.size(); i++) {
            std::vector<float> data(k.buffers[i] / 4);
            for (size_t j = 0; j < data.size(); j++) data[j] = 0.5f + (float)((j * 2654435761u + i) % 1000003) / 1000003;
            CHECK(cuMemcpyHtoD(at[i], data.data(), k.buffers[i]));
        }
    }

    ~Bench() {
        for (CUdeviceptr p : at) cuMemFree(p);
        cuModuleUnload(module);
    }

    uint64_t tasks() const { return (uint64_t)k.grid[0] * k.grid[1] * k.grid[2]; }

    CUfunction function(const char *suffix) {
        CUfunction f;
        CHECK(cuModuleGetFunction(&f, module, (std::string(k.entry) + suffix).c_str()));
        return f;
    }

    void launch(CUfunction f, uint32_t x, uint32_t y, uint32_t z, Args *args) {
        std::vector<void *> params;
        for (CUdeviceptr &p : at) params.push_back(&p);
        std::vector<uint64_t> values = k.values;
        for (uint64_t &v : values) params.push_back(&v);
        if (args) params.push_back(args);
        CHECK(cuLaunchKernel(f, x, y, z, k.block[0], k.block[1], k.block[2], 0, work, params.data(), nullptr));
    }

    void original() { launch(function(""), k.grid[0], k.grid[1], k.grid[2], nullptr); }

    void clear() { CHECK(cuMemsetD8(at.back(), 0xcd, k.buffers.back())); }

    bool same() {
        got.resize(k.buffers.back());
        CHECK(cuMemcpyDtoH(got.data(), at.back(), got.size()));
        return got == want;
    }

    void learn() {
        clear();
        original();
        CHECK(cuCtxSynchronize());
        want.resize(k.buffers.back());
        CHECK(cuMemcpyDtoH(want.data(), at.back(), want.size()));
    }

    uint32_t units(const Form &f) { return (uint32_t)((tasks() + f.group - 1) / f.group); }

    // start does the first launch of a form.
    void start(const Form &f, CUfunction fn, uint32_t hardware, Args &a) {
        a = Args{};
        a.control = control;
        a.skipped = skipped;
        a.tasks = (uint32_t)tasks();
        memcpy(a.grid, k.grid, sizeof a.grid);
        a.group = f.group;
        a.every = f.every;
        a.word = hosted ? (uint64_t)word : 0;
        *(volatile uint32_t *)word = 0;
        a.count = units(f);
        CHECK(cuMemsetD8Async(control, 0, CONTROL, work));
        if (f.single) {
            a.flags = 1;
            launch(fn, k.grid[0], k.grid[1], k.grid[2], &a);
        } else if (f.persistent) {
            launch(fn, hardware, 1, 1, &a);
        } else {
            launch(fn, a.count, 1, 1, &a);
        }
    }

    // resident returns how many blocks fit on the GPU.
    uint32_t resident(CUfunction fn) {
        int sms, blocks;
        CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fn, k.block[0] * k.block[1] * k.block[2], 0));
        return std::min<uint64_t>((uint64_t)sms * blocks, tasks());
    }

    double timed(const std::function<void()> &run, int runs) {
        std::vector<double> times;
        CUevent a, b;
        CHECK(cuEventCreate(&a, 0));
        CHECK(cuEventCreate(&b, 0));
        for (int i = 0; i < runs + 2; i++) {
            CHECK(cuEventRecord(a, work));
            run();
            CHECK(cuEventRecord(b, work));
            CHECK(cuEventSynchronize(b));
            float ms;
            CHECK(cuEventElapsedTime(&ms, a, b));
            if (i >= 2) times.push_back(1000 * ms);
        }
        cuEventDestroy(a);
        cuEventDestroy(b);
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }

    // evicted runs the kernel once, evicted after a delay, and then to its end. It
    // returns the eviction latency, or a negative value if the kernel was done before.
    double evicted(const Form &f, CUfunction fn, uint32_t hardware, double delay, int &launches, uint64_t &left) {
        clear();
        // A bitmap of skipped units, sized for any number of them.
        CHECK(cuMemsetD8(skipped, 0, (units(f) + 31) / 32 * 4));
        CHECK(cuCtxSynchronize());
        Args a;
        start(f, fn, hardware, a);
        launches = 1;
        double begin = now();
        while (now() - begin < delay) {
        }
        bool before = cuStreamQuery(work) == CUDA_SUCCESS;
        double asked = now();
        *(volatile uint32_t *)word = 0xffffffff;
        if (!hosted) CHECK(cuMemcpyHtoDAsync(control + EVICT, word, 4, side));
        while (cuStreamQuery(work) == CUDA_ERROR_NOT_READY) {
        }
        double took = now() - asked;
        CHECK(cuCtxSynchronize());
        char readback[CONTROL];
        CHECK(cuMemcpyDtoH(readback, control, sizeof readback));
        auto at32 = [&](int offset) {
            uint32_t v;
            memcpy(&v, readback + offset, 4);
            return v;
        };
        CHECK(cuMemsetD32(control + EVICT, 0, 1));
        *(volatile uint32_t *)word = 0;
        left = f.persistent ? tasks() - std::min<uint64_t>(at32(NEXT), tasks()) : at32(SKIPPED);
        if (left == 0) return before ? -1 : took;
        if (f.persistent) {
            launch(fn, hardware, 1, 1, &a);
        } else {
            std::vector<uint32_t> bits((units(f) + 31) / 32), todo;
            CHECK(cuMemcpyDtoH(bits.data(), skipped, 4 * bits.size()));
            for (uint32_t u = 0; u < units(f); u++)
                if (bits[u / 32] >> (u % 32) & 1) todo.push_back(u);
            if (todo.size() != left) fprintf(stderr, "%s %s: %zu bits, %llu counted\n", k.entry, f.name, todo.size(), (unsigned long long)left);
            CHECK(cuMemcpyHtoD(list, todo.data(), 4 * todo.size()));
            CHECK(cuMemsetD32(control + SKIPPED, 0, 1));
            a.flags = 0;
            a.list = list;
            a.count = (uint32_t)todo.size();
            launch(fn, a.count, 1, 1, &a);
        }
        launches++;
        CHECK(cuCtxSynchronize());
        return took;
    }
};

int main(int argc, char **argv) {
    std::string where = argc == 5 ? argv[4] : "device";
    if (argc < 4 || argc > 5 || (where != "device" && where != "host" && where != "proxy")) {
        fprintf(stderr, "usage: runner DIR RUNS EVICTIONS [device|host|proxy]\n");
        return 2;
    }
    hosted = where != "device";
    std::string dir = argv[1];
    int runs = atoi(argv[2]), evictions = atoi(argv[3]);
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&control, CONTROL));
    CHECK(cuMemAlloc(&list, 8 << 20));
    CHECK(cuMemAlloc(&skipped, 8 << 20));
    CHECK(cuMemHostAlloc((void **)&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    char name[128];
    CHECK(cuDeviceGetName(name, sizeof name, device));
    printf("%s, %d runs, %d evictions each\n", name, runs, evictions);

    auto bits = [](float f) {
        uint32_t u;
        memcpy(&u, &f, 4);
        return (uint64_t)u;
    };
    const size_t MiB = 1 << 20;
    std::vector<Kernel> kernels = {
        // 2^28 floats.
        {"vecadd.ptx", "vecadd", {1 << 20, 1, 1}, {256, 1, 1}, {1024 * MiB, 1024 * MiB, 1024 * MiB}, {1u << 28}},
        // 16384 points each way, nine of them read for each through a tile.
        {"stencil.ptx", "stencil9", {1024, 1024, 1}, {16, 16, 1}, {1024 * MiB, 1024 * MiB}, {16384, 16384, bits(0.25f), bits(0.125f), bits(0.0625f)}},
        // 4096 x 4096.
        {"matmul.ptx", "matmul", {256, 256, 1}, {16, 16, 1}, {64 * MiB, 64 * MiB, 64 * MiB}, {4096}},
        // 2^20 bodies, each against the first 8192.
        {"nbody.ptx", "nbody", {8192, 1, 1}, {128, 1, 1}, {16 * MiB, 16 * MiB}, {bits(0.01f), 8192}},
    };
    for (const Kernel &k : kernels) {
        if (!std::ifstream(dir + "/" + k.file)) continue;  // not wanted
        Bench b(k, dir);
        b.learn();
        double original = b.timed([&] { b.original(); }, runs);
        printf("%-9s %-14s %10.1f us\n", k.entry, "original", original);
        std::vector<Form> each(std::begin(forms), std::end(forms));
        if (argc == 5) each.assign(std::begin(papers), std::end(papers));
        for (const Form &f : each) {
            CUfunction fn;
            // Only the persistent form has a proxy.
            if (cuModuleGetFunction(&fn, b.module, (std::string(k.entry) + f.suffix).c_str()) != CUDA_SUCCESS) continue;
            uint32_t hardware = b.resident(fn);
            if (f.group > 1 && b.units(f) < 128) continue;
            Args a;
            // The time includes clearing the control block.
            double length = b.timed([&] { b.start(f, fn, hardware, a); }, runs);
            double plain = b.timed([&] { CHECK(cuMemsetD8Async(control, 0, CONTROL, work)); b.original(); }, runs);
            b.clear();
            b.start(f, fn, hardware, a);
            CHECK(cuCtxSynchronize());
            bool same = b.same();
            std::vector<double> latencies;
            double left = 0;
            int most = 0;
            std::uniform_real_distribution<double> part(0.05, 0.9);
            for (int i = 0; i < evictions; i++) {
                int launches;
                uint64_t rest;
                double took = b.evicted(f, fn, hardware, part(random_bits) * length, launches, rest);
                most = std::max(most, launches);
                if (took >= 0) {
                    latencies.push_back(took);
                    left += (double)rest / evictions;
                }
                // Every result is compared if that is quick.
                if (k.buffers.back() <= 64 * MiB || i % 8 == 0) same = b.same() && same;
            }
            std::sort(latencies.begin(), latencies.end());
            double p50 = 0, p90 = 0;
            if (!latencies.empty()) {
                p50 = latencies[latencies.size() / 2];
                p90 = latencies[latencies.size() * 9 / 10];
            }
            printf("%-9s %-14s %10.1f us %+8.2f %%   evicted p50 %8.1f us p90 %8.1f us of %zu, %9.0f left, %d launches, %s\n", k.entry, f.name, length,
                   100 * (length / plain - 1), p50, p90, latencies.size(), left, most, same ? "results the same" : "RESULTS DIFFER");
            fflush(stdout);
        }
    }
    return 0;
}
