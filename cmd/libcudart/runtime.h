#ifndef VGPU_RUNTIME_H
#define VGPU_RUNTIME_H

/* What the files of the CUDA runtime share.
 *
 * The runtime is a thin layer over the documented driver API. It adds what the driver does not
 * have: kernels and variables that compilers registered by their host addresses (register.c), the
 * primary context of the calling thread's device (device.c), and the last error of a thread
 * (error.c). Everything else is carried out by the driver.
 *
 * An exported function has the form
 *
 *     EXPORT cudaError_t cudaX(...) { READY; return done(driver.cuX(...)); }
 *
 * READY loads the driver and makes a context current, and returns from the function if it can't.
 *
 * Lock order: registry, then device. Neither is held while a program's callback runs. */

#define VGPU_BUILDS_CUDART
#include "cuda.h"
#include "cuda_runtime_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define HOT __attribute__((hot))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define MAJOR (CUDART_VERSION / 1000)

/* driver.c */

#define DRIVER_FUNCTION(name) __typeof__(&name) name;
struct driver {
#include "driver_functions.h"
};
#undef DRIVER_FUNCTION

/* driver holds the driver's functions. One that this driver lacks answers 801. */
extern struct driver driver;

/* load_driver loads libcuda.so.1 once, and initializes it. */
CUresult load_driver(void);

/* driver_symbol returns the driver's function of that name, or NULL. */
void *driver_symbol(const char *name);

/* error.c */

/* fail records a call's error as its thread's last. */
cudaError_t fail(cudaError_t e);

/* forget_corruption lets device be used again after its context was reset. */
void forget_corruption(int device);

static inline cudaError_t done(CUresult r)
{
    return likely(r == CUDA_SUCCESS) ? cudaSuccess : fail((cudaError_t)r);
}

/* device.c */

/* ready makes sure that the calling thread has a current context. */
CUresult ready(void);

/* ready_context is ready, and returns the context. */
CUresult ready_context(CUcontext *ctx);

/* thread_device returns the calling thread's device. */
int thread_device(void);

/* primary_context returns device's primary context, which it retains when it is first asked for. */
CUresult primary_context(int device, CUcontext *ctx);

/* context_epoch changes whenever contexts went, so that what was cached for them is stale. */
extern _Atomic unsigned context_epoch;

#define READY                                                                                      \
    do {                                                                                           \
        CUresult ready_ = ready();                                                                 \
        if (unlikely(ready_ != CUDA_SUCCESS))                                                      \
            return fail((cudaError_t)ready_);                                                      \
    } while (0)

/* TRY returns the error of a driver's or an internal call from the function. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_ = (CUresult)(call);                                                          \
        if (unlikely(try_ != CUDA_SUCCESS))                                                        \
            return fail((cudaError_t)try_);                                                        \
    } while (0)

/* register.c */

/* function_of finds the driver's function of a kernel's host stub in the current context. */
CUresult function_of(const void *stub, CUfunction *f);

/* stub_of finds the host stub of a function, or returns the function itself if it has none. */
void *stub_of(CUfunction f);

/* name_of returns the device name of a kernel's host stub, or NULL. */
const char *name_of(const void *stub);

/* symbol_of finds a variable's device address and size in the current context. */
CUresult symbol_of(const void *host, CUdeviceptr *p, size_t *size);

/* texref_of and surfref_of find a legacy reference in the current context. */
CUresult texref_of(const void *host, CUtexref *ref, enum cudaTextureReadMode *mode);
CUresult surfref_of(const void *host, CUsurfref *ref);

/* forget_context drops what was loaded for a context that is gone. */
void forget_context(CUcontext ctx);

/* The names that end in _ptsz and _ptds are those of programs compiled for per-thread default
 * streams: stream 0 is then the calling thread's own. */
static inline cudaStream_t own(cudaStream_t s)
{
    return s ? s : cudaStreamPerThread;
}

#define PTSZ(name, params, args)                                                                   \
    EXPORT cudaError_t name##_ptsz params;                                                         \
    EXPORT cudaError_t name##_ptsz params { return name args; }

#define DEVICE_PTR(p) ((CUdeviceptr)(uintptr_t)(p))
#define HOST_PTR(p) ((void *)(uintptr_t)(p))

/* array.c */
CUresult array_format(const struct cudaChannelFormatDesc *d, CUarray_format *f, unsigned *channels);
CUresult channel_desc(CUarray_format f, unsigned channels, struct cudaChannelFormatDesc *d);
size_t format_bytes(CUarray_format f);

/* copy.c */
CUresult copy_params(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *c);
void copy_params_back(const CUDA_MEMCPY3D *c, struct cudaMemcpy3DParms *p);
void linear_params(CUDA_MEMCPY3D *c, void *dst, const void *src, size_t n, enum cudaMemcpyKind k);

#endif
