// Performs case files on a real GPU through CUDA's driver interface, with their
// kernels in a preemptible form and evicted at random:
//
//     runner FORMS SEED MODULE CASE OUT PRINTED [CASE OUT PRINTED]...
//     runner FORMS SEED -compare MODULE ENTRY...
//     runner FORMS SEED -same MODULE CASE [MODULE CASE]...
//
// FORMS is a list of FORM:GROUP:EVERY, joined by commas; FORM is abi.PreemptForm's
// number. MODULE is transformed, and PTX or assembled. The first way runs the cases
// of gpu/corpus/gpucheck (gpu/corpus/casefile.go describes the files) in each of
// the forms and writes what gpucheck verifies; @ in OUT and PRINTED becomes the
// form's place in the list. The second runs kernels of one parameter, an array that
// every thread writes one word of, on a grid of 50 by 9 blocks of 128 threads, and
// compares the forms with the original. The third does the same with cases. An entry
// that is not offered in a form is run as it is, and counted. Whatever takes two
// seconds hangs.
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#define CHECK(call)                                                            \
    do {                                                                       \
        CUresult result = (call);                                              \
        if (result != CUDA_SUCCESS) {                                          \
            const char *text = "";                                             \
            cuGetErrorString(result, &text);                                   \
            fprintf(stderr, "%s: %s: %s\n", current, #call, text);             \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static const char *current = "runner";  // the file being worked on, for messages

// Says what is wrong with it.
__attribute__((format(printf, 1, 0))) static void complain(const char *format, va_list args) {
    fprintf(stderr, "%s: ", current);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

// The same, and ends: nothing can go on.
__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    complain(format, args);
    _exit(1);
}

static bool wrong;  // some result was

// The same, and goes on with what is next.
__attribute__((format(printf, 1, 2))) static void differ(const char *format, ...) {
    va_list args;
    va_start(args, format);
    complain(format, args);
    va_end(args);
    wrong = true;
}

static std::string slurp(const char *path) {
    std::ifstream f(path, std::ios::binary);
    if (!f)
        fail("cannot read %s", path);
    return std::string(std::istreambuf_iterator<char>(f), {});
}

// Reads a case file's words and strings in turn.
struct Reader {
    std::string data;
    size_t at = 0;

    const char *take(size_t n) {
        if (n > data.size() - at)
            fail("ends early");
        at += n;
        return data.data() + at - n;
    }
    uint64_t word() {
        uint64_t v;
        memcpy(&v, take(8), 8);
        return v;
    }
    std::string text() {
        size_t n = word();
        return std::string(take(n), n);
    }
};

// The launch's appended parameter and the control block: abi.PreemptArgs, abi.ControlWords.
struct Args {
    uint64_t control, list, skipped;
    uint32_t first, count, tasks, grid[3], group, every, capacity, flags;
    uint8_t zero[32];
};
static_assert(sizeof(Args) == 96, "the layout of abi.PreemptArgs");
enum { EVICT = 0, NEXT = 0x80 / 4, SKIPPED = 0x180 / 4, INSIDE = 0x200 / 4, CONTROL = 0x280 / 4 };
enum { SINGLE = 1, COARSE = 2, PERSISTENT = 4 };
static const uint32_t LIST = 65536;          // entries
static const size_t BITMAP = 1 << 20;        // bytes
static const int EVICTIONS = 4;              // of one launch at most

struct Form {
    int form;
    unsigned group, every;
    unsigned long launches, evictions, originals;  // so far
};
static Form original;         // the kernels as they were
static Form *use = &original;  // the form in use
static std::mt19937 rng;
static CUdeviceptr control, list, skipped;
static CUstream stream, side;
static int processors;

static unsigned random_below(unsigned n) { return rng() % n; }

static void setup() {
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK(cuMemAlloc(&control, CONTROL * 4));
    CHECK(cuMemAlloc(&list, LIST * 4));
    CHECK(cuMemAlloc(&skipped, BITMAP));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
}

// Waits for the launch, at most two seconds.
static void finish(const std::string &entry) {
    for (int i = 0; cuStreamQuery(stream) == CUDA_ERROR_NOT_READY; i++) {
        usleep(100);
        if (i > 20000) {
            uint32_t c[CONTROL] = {};
            cuMemcpyDtoHAsync(c, control, sizeof c, side);
            cuStreamSynchronize(side);
            fail("%s hangs: evict %u, next %u, skipped %u, inside %u", entry.c_str(), c[EVICT], c[NEXT], c[SKIPPED],
                 c[INSIDE]);
        }
    }
    CHECK(cuStreamSynchronize(stream));
}

// Reads which units were skipped, in order.
static std::vector<uint32_t> read_skipped(const std::string &entry, bool bitmap, uint32_t n, uint32_t units) {
    std::vector<uint32_t> out;
    if (bitmap) {
        std::vector<uint32_t> words((units + 31) / 32);
        CHECK(cuMemcpyDtoH(words.data(), skipped, words.size() * 4));
        for (uint32_t u = 0; u < units; u++)
            if (words[u / 32] >> (u % 32) & 1)
                out.push_back(u);
    } else {
        out.resize(std::min(n, LIST));
        CHECK(cuMemcpyDtoH(out.data(), skipped, out.size() * 4));
        std::sort(out.begin(), out.end());
    }
    bool twice = std::adjacent_find(out.begin(), out.end()) != out.end();
    if (out.size() != n || twice || out.back() >= units)
        fail("%s: of %u units %u say that they were skipped, not these", entry.c_str(), units, n);
    return out;
}

// Runs one launch of the original kernel to its end.
static void run(CUmodule module, const std::string &entry, const unsigned *dims, unsigned shared, std::vector<void *> params) {
    static const char *suffixes[] = {"", "__vgpud_single", "__vgpud_coarse", "", "__vgpud_persist"};
    CUfunction f;
    int form = use->form;
    if (form == 0 || cuModuleGetFunction(&f, module, (entry + suffixes[form]).c_str()) != CUDA_SUCCESS) {
        use->originals++;
        CHECK(cuModuleGetFunction(&f, module, entry.c_str()));
        CHECK(cuLaunchKernel(f, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], shared, stream, params.data(), nullptr));
        finish(entry);
        return;
    }
    Args a{};
    a.control = control, a.skipped = skipped;
    std::copy(dims, dims + 3, a.grid);
    a.tasks = dims[0] * dims[1] * dims[2];
    a.group = form == SINGLE ? 1 : use->group, a.every = use->every;
    uint32_t units = (a.tasks - 1) / a.group + 1;
    bool bitmap = units > LIST || random_below(2);
    a.capacity = bitmap ? 0 : LIST;
    a.count = units, a.flags = form == SINGLE;
    params.push_back(&a);
    CHECK(cuMemsetD8(control, 0, CONTROL * 4));
    for (int attempt = 0;; attempt++) {
        uint32_t before = 0, during = 0, zero = 0;
        if (attempt < EVICTIONS) {
            uint32_t below = random_below(8) ? random_below(processors + 1) : ~0u;
            (random_below(2) ? before : during) = below;
        }
        CHECK(cuMemcpyHtoD(control, &before, 4));
        CHECK(cuMemcpyHtoD(control + SKIPPED * 4, &zero, 4));
        if (bitmap)
            CHECK(cuMemsetD8(skipped, 0, BITMAP));
        unsigned grid[3] = {a.count, 1, 1};
        if (a.flags)
            std::copy(dims, dims + 3, grid);
        if (form == PERSISTENT) {
            int per = 0;
            CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per, f, dims[3] * dims[4] * dims[5], shared));
            grid[0] = std::min<unsigned>(a.tasks, std::max(1, per * processors));
            if (random_below(2))
                grid[0] = 1 + random_below(grid[0]);
        }
        CHECK(cuCtxSynchronize());
        CHECK(cuLaunchKernel(f, grid[0], grid[1], grid[2], dims[3], dims[4], dims[5], shared, stream, params.data(), nullptr));
        use->launches++;
        if (during) {
            usleep(random_below(60));
            CHECK(cuMemcpyHtoDAsync(control, &during, 4, side));
            CHECK(cuStreamSynchronize(side));
        }
        finish(entry);
        uint32_t c[CONTROL];
        CHECK(cuMemcpyDtoH(c, control, sizeof c));
        if (c[INSIDE] != 0) fail("%s: %u inside", entry.c_str(), c[INSIDE]);
        if (form == PERSISTENT ? c[NEXT] >= a.tasks : c[SKIPPED] == 0)
            return;
        if (!before && !during)
            fail("%s: %u of %u fetched, %u skipped, and nobody asked", entry.c_str(), c[NEXT], a.tasks, c[SKIPPED]);
        use->evictions++;
        if (form == PERSISTENT)
            continue;
        std::vector<uint32_t> left = read_skipped(entry, bitmap, c[SKIPPED], units);
        a.flags = 0, a.count = left.size();
        a.list = 0, a.first = left.front();
        if (left.back() - left.front() + 1 != left.size()) {
            if (left.size() > LIST)
                fail("%s: %zu units are more than the list holds", entry.c_str(), left.size());
            a.list = list, a.first = 0;
            CHECK(cuMemcpyHtoD(list, left.data(), left.size() * 4));
        }
    }
}

struct Memory {
    CUdeviceptr address;
    size_t size;
    bool allocated;
};

// Performs a case, and returns what its buffers hold then.
static std::vector<std::string> perform(CUmodule module, const char *case_path) {
    Reader in{slurp(case_path)};
    std::vector<Memory> buffers(in.word());
    for (Memory &b : buffers) {
        std::string global = in.text();
        b.size = in.word();
        std::string init = in.text();
        b.allocated = global.empty();
        if (b.allocated) {
            CHECK(cuMemAlloc(&b.address, b.size));
        } else {
            size_t size;
            CHECK(cuModuleGetGlobal(&b.address, &size, module, global.c_str()));
            if (size != b.size)
                fail("variable %s has %zu bytes, not %zu", global.c_str(), size, b.size);
        }
        // What a kernel is to fill begins as rubbish, so that gaps show.
        if (!init.empty())
            CHECK(cuMemcpyHtoD(b.address, init.data(), init.size()));
        else if (b.allocated)
            CHECK(cuMemsetD8(b.address, 0xa5, b.size));
    }
    for (uint64_t steps = in.word(); steps > 0; steps--) {
        std::string entry = in.text();
        unsigned dims[6];
        for (unsigned &d : dims)
            d = in.word();
        unsigned shared = in.word();
        std::vector<std::string> values(in.word());
        std::vector<void *> params;
        for (std::string &value : values) {
            if (uint64_t buffer = in.word()) {
                CUdeviceptr address = buffers.at(buffer - 1).address + in.word();
                value.assign(reinterpret_cast<char *>(&address), sizeof address);
            } else {
                value = in.text();
            }
            params.push_back(value.data());
        }
        run(module, entry, dims, shared, params);
    }
    std::vector<std::string> contents;
    for (const Memory &b : buffers) {
        contents.emplace_back(b.size, '\0');
        CHECK(cuMemcpyDtoH(&contents.back()[0], b.address, b.size));
        if (b.allocated)
            CHECK(cuMemFree(b.address));
    }
    return contents;
}

// Sends what kernels print from now on to a file.
static void print_to(const char *path) {
    int printed = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (printed < 0 || dup2(printed, STDOUT_FILENO) < 0)
        fail("cannot write %s", path);
    close(printed);
}

// Performs a case in a form, with a module for itself, so that its variables begin
// as the source says.
static std::vector<std::string> perform_in(Form *f, const std::string &image, const char *case_path) {
    CUmodule module;
    CHECK(cuModuleLoadData(&module, image.c_str()));
    use = f;
    std::vector<std::string> contents = perform(module, case_path);
    CHECK(cuCtxSynchronize());
    fflush(stdout);
    CHECK(cuModuleUnload(module));
    return contents;
}

// Compares what the forms leave of a case with what the original leaves, five times
// each. What the original doesn't leave alike itself is not compared.
static void same(std::vector<Form> &forms, const char *module, const char *case_path) {
    current = case_path;
    std::string image = slurp(module);
    std::vector<std::string> want = perform_in(&original, image, case_path);
    std::vector<bool> loose(want.size());
    auto varies = [&](size_t b, int times) {
        for (int i = 0; i < times && !loose[b]; i++)
            loose[b] = perform_in(&original, image, case_path)[b] != want[b];
        return loose[b];
    };
    for (Form &f : forms)
        for (int i = 0; i < 5; i++) {
            unsigned long before = f.launches;
            std::vector<std::string> got = perform_in(&f, image, case_path);
            if (f.launches == before)
                break;  // it is not offered
            for (size_t b = 0; b < got.size(); b++)
                if (!loose[b] && got[b] != want[b] && !varies(b, 50)) {
                    size_t at = 0;
                    while (got[b][at] == want[b][at])
                        at++;
                    differ("form %d, %u tasks: buffer %zu differs from the original's at byte %zu of %zu", f.form, f.group, b, at, got[b].size());
                    return;
                }
        }
}

// Compares the forms with the original, ten times each.
static void compare(std::vector<Form> &forms, CUmodule module, const char *entry) {
    const unsigned dims[6] = {50, 9, 1, 128, 1, 1};
    std::vector<uint32_t> want(50 * 9 * 128), got(want.size());
    CUdeviceptr out;
    CHECK(cuMemAlloc(&out, want.size() * 4));
    auto perform = [&](Form *f, std::vector<uint32_t> &into) {
        use = f;
        CHECK(cuMemsetD8(out, 0xa5, want.size() * 4));
        run(module, entry, dims, 0, {&out});
        CHECK(cuMemcpyDtoH(into.data(), out, into.size() * 4));
    };
    perform(&original, want);
    for (Form &f : forms)
        for (int i = 0; i < 10; i++) {
            perform(&f, got);
            size_t others = 0;
            for (size_t k = 0; k < got.size(); k++)
                others += got[k] != want[k];
            if (others)
                differ("%s in form %d, %u tasks: %zu of %zu words differ from the original's", entry, f.form, f.group, others, got.size());
        }
    CHECK(cuMemFree(out));
}

static std::vector<Form> parse(const char *list) {
    std::vector<Form> forms;
    for (const char *at = list;; at++) {
        Form f{};
        int n = 0;
        if (sscanf(at, "%d:%u:%u%n", &f.form, &f.group, &f.every, &n) != 3)
            fail("forms %s: want FORM:GROUP:EVERY,...", list);
        forms.push_back(f);
        at += n;
        if (!*at)
            return forms;
    }
}

// The path of a form's file.
static std::string place(std::string path, size_t number) {
    size_t at = path.find('@');
    return at == path.npos ? path : path.replace(at, 1, std::to_string(number));
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: runner FORMS SEED MODULE CASE OUT PRINTED...\n"
                        "       runner FORMS SEED -compare MODULE ENTRY...\n"
                        "       runner FORMS SEED -same MODULE CASE...\n");
        return 2;
    }
    std::vector<Form> forms = parse(argv[1]);
    rng.seed(atoi(argv[2]));
    setup();
    if (!strcmp(argv[3], "-compare")) {
        CUmodule module;
        current = argv[4];
        CHECK(cuModuleLoadData(&module, slurp(argv[4]).c_str()));
        for (int i = 5; i < argc; i++)
            compare(forms, module, argv[i]);
    } else if (!strcmp(argv[3], "-same")) {
        print_to("/dev/null");
        for (int i = 4; i + 1 < argc; i += 2)
            same(forms, argv[i], argv[i + 1]);
    } else {
        std::string image = slurp(argv[3]);
        for (int i = 4; i + 2 < argc; i += 3)
            for (size_t n = 0; n < forms.size(); n++) {
                current = argv[i];
                print_to(place(argv[i + 2], n).c_str());
                std::string path = place(argv[i + 1], n);
                std::ofstream out(path, std::ios::binary);
                for (const std::string &buffer : perform_in(&forms[n], image, argv[i]))
                    out.write(buffer.data(), buffer.size());
                out.close();
                if (!out)
                    fail("cannot write %s", path.c_str());
            }
    }
    for (const Form &f : forms)
        fprintf(stderr, "sum %d:%u:%u %lu %lu %lu\n", f.form, f.group, f.every, f.launches, f.evictions, f.originals);
    return wrong;
}
