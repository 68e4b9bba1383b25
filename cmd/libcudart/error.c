/* The last error of a thread (CUDA Runtime API, Error Handling). */

#include "runtime.h"

#define DEVICES 64

static __thread cudaError_t last;

/* Errors after which the documentation says that all further work returns the same error. They
 * belong to the device's context rather than to a thread, and reading them does not clear them. */
static _Atomic int corrupted[DEVICES];

static bool corrupts(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

cudaError_t fail(cudaError_t e)
{
    int d = thread_device();
    if (corrupts(e) && d >= 0 && d < DEVICES)
        atomic_store(&corrupted[d], (int)e);
    last = e;
    return e;
}

void forget_corruption(int device)
{
    if (device >= 0 && device < DEVICES)
        atomic_store(&corrupted[device], 0);
    last = cudaSuccess;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    int d = thread_device();
    if (last == cudaSuccess && d >= 0 && d < DEVICES)
        return (cudaError_t)atomic_load(&corrupted[d]);
    return last;
}

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}
