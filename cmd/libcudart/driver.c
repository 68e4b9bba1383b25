/* Loads the driver. Nothing of it is used before the program's first call. */

#include "runtime.h"

#include <dlfcn.h>

static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

struct driver driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult result;
static _Atomic bool loaded;
static void *library;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define DRIVER_FUNCTION(name) {#name, offsetof(struct driver, name)},
#include "driver_functions.h"
#undef DRIVER_FUNCTION
};

static void load(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        result = (CUresult)cudaErrorInsufficientDriver;
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(library, functions[i].name);
        if (!f)
            f = (void *)missing;
        memcpy((char *)&driver + functions[i].offset, &f, sizeof f);
    }
    result = driver.cuInit(0);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&loaded, true, memory_order_release);
}

CUresult load_driver(void)
{
    if (likely(atomic_load_explicit(&loaded, memory_order_acquire)))
        return CUDA_SUCCESS;
    pthread_once(&once, load);
    return result;
}

void *driver_symbol(const char *name)
{
    return library ? dlsym(library, name) : NULL;
}
