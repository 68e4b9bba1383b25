/* What code that a CUDA compiler made calls: registration at a program's start and end, and the
 * configuration of a launch. The names and parameters are those that clang emits, and nvcc. */

#include "registry.h"

#define WRAPPER_MAGIC 0x466243b1

/* The wrapper that the compiler's code registers (fatbinary_section.h). */
struct wrapper {
    unsigned magic;
    unsigned version;
    const void *data;
    void *list;
};

EXPORT void **__cudaRegisterFatBinary(void *p)
{
    const struct wrapper *w = p;
    return (void **)register_image(w && w->magic == WRAPPER_MAGIC ? w->data : p);
}

EXPORT void __cudaRegisterFatBinaryEnd(void **image) { (void)image; }

EXPORT void __cudaUnregisterFatBinary(void **image)
{
    if (image)
        unregister_image((struct image *)image);
}

EXPORT void __cudaRegisterFunction(void **image, const char *stub, char *device_stub,
    const char *name, int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)device_stub, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    if (image)
        register_entry((struct image *)image, KERNEL, stub, name);
}

EXPORT void __cudaRegisterVar(void **image, char *host, char *device, const char *name,
    int external, size_t size, int constant, int global)
{
    (void)device, (void)external, (void)size, (void)constant, (void)global;
    if (image)
        register_entry((struct image *)image, VARIABLE, host, name);
}

EXPORT void __cudaRegisterHostVar(void **image, const char *name, char *host, size_t size)
{
    (void)image, (void)name, (void)host, (void)size;
}

/* Managed memory is not supported: the variable gets memory of the host's, so that the program can
 * touch it, and whatever needs the image fails. */
EXPORT void __cudaRegisterManagedVar(void **image, void **host, char *device, const char *name,
    int external, size_t size, int constant, int global)
{
    (void)device, (void)external, (void)constant, (void)global;
    if (!image)
        return;
    *host = calloc(1, size);
    register_managed((struct image *)image);
    register_entry((struct image *)image, VARIABLE, *host, name);
}

EXPORT void __cudaRegisterTexture(void **image, const void *host, const void **device,
    const char *name, int dimensions, int normalized, int external)
{
    (void)device, (void)dimensions, (void)external;
    if (image)
        register_entry((struct image *)image, normalized ? TEXTURE_OF_FLOATS : TEXTURE, host, name);
}

EXPORT void __cudaRegisterSurface(void **image, const void *host, const void **device,
    const char *name, int dimensions, int external)
{
    (void)device, (void)dimensions, (void)external;
    if (image)
        register_entry((struct image *)image, SURFACE, host, name);
}

EXPORT char __cudaInitModule(void **image)
{
    (void)image;
    return 1;
}

/* The configurations of a thread's launches, of which the arguments are being evaluated. They nest
 * where an argument's evaluation launches a kernel. */
struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

static __thread struct configuration first[4];
static __thread struct configuration *stack;
static __thread size_t depth, capacity;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    if (!stack) {
        stack = first;
        capacity = sizeof first / sizeof *first;
    }
    if (depth == capacity) {
        struct configuration *s = malloc(2 * capacity * sizeof *s);
        if (!s)
            return (unsigned)fail(cudaErrorMemoryAllocation);
        memcpy(s, stack, depth * sizeof *s);
        if (stack != first)
            free(stack);
        stack = s;
        capacity *= 2;
    }
    stack[depth++] = (struct configuration){grid, block, shared, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    if (depth == 0)
        return fail(cudaErrorMissingConfiguration);
    struct configuration *c = &stack[--depth];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}
