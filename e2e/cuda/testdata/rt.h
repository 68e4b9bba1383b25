// What the runtime's programs share.
#ifndef RT_H
#define RT_H

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static inline void want_at(int line, const char *what, cudaError_t got, cudaError_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "line %d: %s: got %s (%d), want %s (%d)\n", line, what, cudaGetErrorName(got), got,
        cudaGetErrorName(want), want);
    exit(1);
}

// The call must return this result.
#define WANT(want, call) want_at(__LINE__, #call, call, want)
#define OK(call) WANT(cudaSuccess, call)
#define TRUE(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline int right()
{
    puts("right");
    return 0;
}

#endif
