/* Libraries, and the driver's functions by name (CUDA Runtime API, Library Management and Driver
 * Entry Point Access). */

#include "registry.h"

#if MAJOR >= 12

_Static_assert((int)cudaJitOverrideDirectiveValues == (int)CU_JIT_OVERRIDE_DIRECTIVE_VALUES, "JIT options");

EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *l, const void *code, enum cudaJitOption *jit,
    void **jit_values, unsigned jits, enum cudaLibraryOption *options, void **values, unsigned n)
{
    READY;
    return done(driver.cuLibraryLoadData(l, code, (CUjit_option *)jit, jit_values, jits,
        (CUlibraryOption *)options, values, n));
}

EXPORT cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *l, const char *file, enum cudaJitOption *jit,
    void **jit_values, unsigned jits, enum cudaLibraryOption *options, void **values, unsigned n)
{
    READY;
    return done(driver.cuLibraryLoadFromFile(l, file, (CUjit_option *)jit, jit_values, jits,
        (CUlibraryOption *)options, values, n));
}

EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t l)
{
    READY;
    return done(driver.cuLibraryUnload(l));
}

EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t l, const char *name)
{
    READY;
    TRY(driver.cuLibraryGetKernel(k, l, name));
    register_handle(*k);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetGlobal(void **p, size_t *size, cudaLibrary_t l, const char *name)
{
    CUdeviceptr d;
    READY;
    TRY(driver.cuLibraryGetGlobal(&d, size, l, name));
    if (p)
        *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetManaged(void **p, size_t *size, cudaLibrary_t l, const char *name)
{
    CUdeviceptr d;
    READY;
    TRY(driver.cuLibraryGetManaged(&d, size, l, name));
    if (p)
        *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetUnifiedFunction(void **f, cudaLibrary_t l, const char *symbol)
{
    READY;
    return done(driver.cuLibraryGetUnifiedFunction(f, l, symbol));
}

EXPORT cudaError_t cudaLibraryGetKernelCount(unsigned *n, cudaLibrary_t l)
{
    READY;
    return done(driver.cuLibraryGetKernelCount(n, l));
}

EXPORT cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *k, unsigned n, cudaLibrary_t l)
{
    unsigned have;
    READY;
    TRY(driver.cuLibraryEnumerateKernels(k, n, l));
    TRY(driver.cuLibraryGetKernelCount(&have, l));
    for (unsigned i = 0; i < n && i < have; i++)
        register_handle(k[i]);
    return cudaSuccess;
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute a, int value, int device)
{
    READY;
    return done(driver.cuKernelSetAttribute((CUfunction_attribute)a, value, k, device));
}

#endif

/* entry_point asks the driver for the function that symbol meant in that version of CUDA. */
static cudaError_t entry_point(const char *symbol, void **f, int version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult s = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !f || flags > cudaEnablePerThreadDefaultStream)
        return fail(cudaErrorInvalidValue);
    *f = NULL;
    TRY(load_driver());
    CUresult r = driver.cuGetProcAddress_v2(symbol, f, version, flags, &s);
    if (status) {
        /* An unknown symbol is an answer rather than an error for who asks for the status. */
        *status = s == CU_GET_PROC_ADDRESS_SUCCESS            ? cudaDriverEntryPointSuccess
                  : s == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND ? cudaDriverEntryPointSymbolNotFound
                                                              : cudaDriverEntryPointVersionNotSufficent;
        if (r == CUDA_ERROR_NOT_FOUND)
            r = CUDA_SUCCESS;
    }
    return done(r);
}

#if MAJOR < 12
EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **f, unsigned long long flags)
{
    return entry_point(symbol, f, CUDART_VERSION, flags, NULL);
}
PTSZ(cudaGetDriverEntryPoint, (const char *symbol, void **f, unsigned long long flags),
    (symbol, f, flags ? flags : cudaEnablePerThreadDefaultStream))
#else
EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **f, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(symbol, f, CUDART_VERSION, flags, status);
}
PTSZ(cudaGetDriverEntryPoint,
    (const char *symbol, void **f, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status),
    (symbol, f, flags ? flags : cudaEnablePerThreadDefaultStream, status))

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned version,
    unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(symbol, f, (int)version, flags, status);
}
PTSZ(cudaGetDriverEntryPointByVersion,
    (const char *symbol, void **f, unsigned version, unsigned long long flags,
        enum cudaDriverEntryPointQueryResult *status),
    (symbol, f, version, flags ? flags : cudaEnablePerThreadDefaultStream, status))
#endif
