// Performs a case file on a real GPU through CUDA's driver interface:
//
//     runner PTX CASE OUT PRINTED [CASE OUT PRINTED]...
//
// loads the PTX and for each case runs its steps, writes all buffers to OUT and
// what the kernels printed to PRINTED, and reports how long the steps took.
// gpu/corpus/casefile.go describes the files.
#include <cuda.h>
#include <unistd.h>
#include <fcntl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
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

static std::string slurp(const char *path) {
    std::ifstream f(path, std::ios::binary);
    if (!f) {
        perror(path);
        exit(1);
    }
    return std::string(std::istreambuf_iterator<char>(f), {});
}

// Reads a case file's words and strings in turn.
struct Reader {
    std::string data;
    size_t at = 0;

    const char *take(size_t n) {
        if (n > data.size() - at) {
            fprintf(stderr, "%s: ends early\n", current);
            exit(1);
        }
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

struct Memory {
    CUdeviceptr address;
    size_t size;
    bool allocated;
};

static void perform(CUmodule module, const char *case_path, const char *out_path) {
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
            if (size != b.size) {
                fprintf(stderr, "%s: variable %s has %zu bytes, not %zu\n", current, global.c_str(), size, b.size);
                exit(1);
            }
        }
        // What a kernel is to fill begins as rubbish, so that gaps show.
        if (!init.empty())
            CHECK(cuMemcpyHtoD(b.address, init.data(), init.size()));
        else if (b.allocated)
            CHECK(cuMemsetD8(b.address, 0xa5, b.size));
    }

    CUevent begin, end;
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(begin, nullptr));
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
        CUfunction function;
        CHECK(cuModuleGetFunction(&function, module, entry.c_str()));
        CHECK(cuLaunchKernel(function, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], shared, nullptr,
                             params.data(), nullptr));
    }
    CHECK(cuEventRecord(end, nullptr));
    CHECK(cuCtxSynchronize());
    float milliseconds;
    CHECK(cuEventElapsedTime(&milliseconds, begin, end));
    fprintf(stderr, "%s: %.3f ms\n", current, milliseconds);

    std::ofstream out(out_path, std::ios::binary);
    for (const Memory &b : buffers) {
        std::string contents(b.size, '\0');
        CHECK(cuMemcpyDtoH(contents.data(), b.address, b.size));
        out.write(contents.data(), contents.size());
        if (b.allocated)
            CHECK(cuMemFree(b.address));
    }
    out.close();
    if (!out) {
        perror(out_path);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 5 || (argc - 2) % 3 != 0) {
        fprintf(stderr, "usage: runner PTX CASE OUT PRINTED [CASE OUT PRINTED]...\n");
        return 2;
    }
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    std::string ptx = slurp(argv[1]);
    for (int i = 2; i < argc; i += 3) {
        current = argv[i];
        // A module for each case, so that its variables begin as the source says.
        CUmodule module;
        CHECK(cuModuleLoadData(&module, ptx.c_str()));
        int printed = open(argv[i + 2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (printed < 0 || dup2(printed, STDOUT_FILENO) < 0) {
            perror(argv[i + 2]);
            return 1;
        }
        close(printed);
        perform(module, argv[i], argv[i + 1]);
        fflush(stdout);
        CHECK(cuModuleUnload(module));
    }
    return 0;
}
