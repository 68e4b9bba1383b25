/* Kernels and variables that a program was compiled with.
 *
 * The constructor that a compiler adds to a program registers each fat binary, and by the address
 * of its host stub or host variable each kernel and variable in it. An image is loaded into a
 * context when something of it is first used there.
 *
 * A launch looks its stub up without a lock: entries are found through a hash table that is
 * replaced when it grows, and what an entry is bound to in a context is a list that only grows. */

#include "registry.h"

#include <stdio.h>

struct load {
    CUcontext ctx;
    CUmodule module;
    struct load *next;
};

struct image {
    const void *data;
    struct load *loads;
    struct image *next;
    bool managed; /* it has managed variables, which are not supported */
};

/* A bound says what an entry is in one context. It never changes. */
struct bound {
    CUcontext ctx;
    unsigned epoch;
    void *handle; /* a CUfunction or a reference */
    CUdeviceptr address;
    size_t size;
    struct bound *next;
};

struct entry {
    const void *host;
    const char *name;
    struct image *image;
    enum kind kind;
    _Atomic(struct bound *) bounds;
};

struct table {
    size_t size; /* a power of two */
    size_t used;
    _Atomic(struct entry *) slots[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct table *) table;
static struct image *images;

static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void at_fork(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

static inline size_t hash(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 20);
}

static inline struct entry *find(const void *host)
{
    struct table *t = atomic_load_explicit(&table, memory_order_acquire);
    if (unlikely(!t))
        return NULL;
    for (size_t i = hash(host);; i++) {
        struct entry *e = atomic_load_explicit(&t->slots[i & (t->size - 1)], memory_order_acquire);
        if (!e || e->host == host)
            return e && e->image ? e : NULL;
    }
}

/* put adds e, or puts it in the place of an entry of the same address. The lock is held. */
static bool put(struct table *t, struct entry *e)
{
    for (size_t i = hash(e->host);; i++) {
        _Atomic(struct entry *) *slot = &t->slots[i & (t->size - 1)];
        struct entry *old = atomic_load(slot);
        if (old && old->host != e->host)
            continue;
        t->used += !old;
        atomic_store_explicit(slot, e, memory_order_release);
        return true;
    }
}

static bool grow(void)
{
    struct table *old = atomic_load(&table);
    if (old && old->used * 2 < old->size)
        return true;
    size_t size = old ? old->size * 2 : 256;
    struct table *t = calloc(1, sizeof *t + size * sizeof *t->slots);
    if (!t)
        return false;
    t->size = size;
    for (size_t i = 0; old && i < old->size; i++) {
        struct entry *e = atomic_load(&old->slots[i]);
        if (e)
            put(t, e);
    }
    /* A reader may still be in the old table, so it is never freed. */
    atomic_store_explicit(&table, t, memory_order_release);
    return true;
}

void register_entry(struct image *image, enum kind kind, const void *host, const char *name)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return;
    e->host = host;
    e->name = name;
    e->image = image;
    e->kind = kind;
    pthread_mutex_lock(&lock);
    if (grow())
        put(atomic_load(&table), e);
    pthread_mutex_unlock(&lock);
}

void register_managed(struct image *image) { image->managed = true; }

/* handles is the image of kernels that were not registered but asked for by name. */
static struct image handles;

void register_handle(void *f)
{
    if (f && !find(f))
        register_entry(&handles, HANDLE, f, NULL);
}

struct image *register_image(const void *data)
{
    struct image *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->data = data;
    pthread_mutex_lock(&lock);
    m->next = images;
    images = m;
    pthread_mutex_unlock(&lock);
    return m;
}

void unregister_image(struct image *m)
{
    pthread_mutex_lock(&lock);
    for (struct image **p = &images; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    struct table *t = atomic_load(&table);
    for (size_t i = 0; t && i < t->size; i++) {
        struct entry *e = atomic_load(&t->slots[i]);
        if (e && e->image == m) {
            e->image = NULL; /* the slot stays: others were put behind it */
            atomic_store(&e->bounds, NULL);
        }
    }
    struct load *loads = m->loads;
    pthread_mutex_unlock(&lock);
    while (loads) {
        struct load *l = loads;
        loads = l->next;
        if (driver.cuCtxPushCurrent_v2(l->ctx) == CUDA_SUCCESS) {
            driver.cuModuleUnload(l->module);
            driver.cuCtxPopCurrent_v2(&l->ctx);
        }
        free(l);
    }
    free(m);
}

void forget_context(CUcontext ctx)
{
    pthread_mutex_lock(&lock);
    for (struct image *m = images; m; m = m->next)
        for (struct load **p = &m->loads; *p;) {
            struct load *l = *p;
            if (l->ctx == ctx) {
                *p = l->next;
                free(l);
            } else {
                p = &l->next;
            }
        }
    pthread_mutex_unlock(&lock);
}

/* load makes sure that the image is loaded into ctx, which is current. The lock is held. */
static CUresult load(struct image *m, CUcontext ctx, CUmodule *module)
{
    for (struct load *l = m->loads; l; l = l->next)
        if (l->ctx == ctx) {
            *module = l->module;
            return CUDA_SUCCESS;
        }
    if (m->managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct load *l = calloc(1, sizeof *l);
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = driver.cuModuleLoadData(&l->module, m->data);
    if (r != CUDA_SUCCESS) {
        free(l);
        return r;
    }
    l->ctx = ctx;
    l->next = m->loads;
    m->loads = l;
    *module = l->module;
    return CUDA_SUCCESS;
}

/* look_up asks the driver what e is in the module. */
static CUresult look_up(struct entry *e, CUmodule module, struct bound *b)
{
    CUresult r = CUDA_SUCCESS;
    switch (e->kind) {
    case KERNEL:
        r = driver.cuModuleGetFunction((CUfunction *)&b->handle, module, e->name);
        return r == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidDeviceFunction : r;
    case VARIABLE:
        r = driver.cuModuleGetGlobal_v2(&b->address, &b->size, module, e->name);
        return r == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidSymbol : r;
    case TEXTURE:
    case TEXTURE_OF_FLOATS:
        r = driver.cuModuleGetTexRef((CUtexref *)&b->handle, module, e->name);
        return r == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidTexture : r;
    case SURFACE:
        r = driver.cuModuleGetSurfRef((CUsurfref *)&b->handle, module, e->name);
        return r == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidSurface : r;
    case HANDLE:
        b->handle = (void *)e->host;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult bind_slowly(struct entry *e, CUcontext ctx, unsigned epoch, struct bound **out)
{
    struct bound *b = calloc(1, sizeof *b);
    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmodule module = NULL;
    pthread_mutex_lock(&lock);
    CUresult r = e->kind == HANDLE ? CUDA_SUCCESS : load(e->image, ctx, &module);
    if (r == CUDA_SUCCESS)
        r = look_up(e, module, b);
    if (r == CUDA_SUCCESS) {
        b->ctx = ctx;
        b->epoch = epoch;
        b->next = atomic_load(&e->bounds);
        atomic_store_explicit(&e->bounds, b, memory_order_release);
        *out = b;
    }
    pthread_mutex_unlock(&lock);
    if (r != CUDA_SUCCESS)
        free(b);
    return r;
}

/* bind finds what the entry of host is in the calling thread's context. */
static inline CUresult bind(const void *host, enum kind kind, CUresult unknown, struct bound **out)
{
    CUcontext ctx;
    CUresult r = ready_context(&ctx);
    if (unlikely(r != CUDA_SUCCESS))
        return r;
    struct entry *e = find(host);
    if (unlikely(!e || (e->kind != kind && !(kind == KERNEL && e->kind == HANDLE) &&
                           !(kind == TEXTURE && e->kind == TEXTURE_OF_FLOATS))))
        return unknown;
    unsigned epoch = atomic_load_explicit(&context_epoch, memory_order_acquire);
    for (struct bound *b = atomic_load_explicit(&e->bounds, memory_order_acquire); b; b = b->next)
        if (likely(b->ctx == ctx && b->epoch == epoch)) {
            *out = b;
            return CUDA_SUCCESS;
        }
    return bind_slowly(e, ctx, epoch, out);
}

HOT CUresult function_of(const void *stub, CUfunction *f)
{
    struct bound *b;
    CUresult r = bind(stub, KERNEL, (CUresult)cudaErrorInvalidDeviceFunction, &b);
    if (likely(r == CUDA_SUCCESS))
        *f = b->handle;
    return r;
}

CUresult symbol_of(const void *host, CUdeviceptr *p, size_t *size)
{
    struct bound *b;
    CUresult r = bind(host, VARIABLE, (CUresult)cudaErrorInvalidSymbol, &b);
    if (r == CUDA_SUCCESS) {
        *p = b->address;
        *size = b->size;
    }
    return r;
}

CUresult texref_of(const void *host, CUtexref *ref, enum cudaTextureReadMode *mode)
{
    struct bound *b;
    CUresult r = bind(host, TEXTURE, (CUresult)cudaErrorInvalidTexture, &b);
    if (r == CUDA_SUCCESS) {
        *ref = b->handle;
        *mode = find(host)->kind == TEXTURE_OF_FLOATS ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    }
    return r;
}

CUresult surfref_of(const void *host, CUsurfref *ref)
{
    struct bound *b;
    CUresult r = bind(host, SURFACE, (CUresult)cudaErrorInvalidSurface, &b);
    if (r == CUDA_SUCCESS)
        *ref = b->handle;
    return r;
}

const char *name_of(const void *stub)
{
    struct entry *e = find(stub);
    return e && e->kind == KERNEL ? e->name : NULL;
}

void *stub_of(CUfunction f)
{
    void *stub = f;
    pthread_mutex_lock(&lock);
    struct table *t = atomic_load(&table);
    for (size_t i = 0; t && i < t->size; i++) {
        struct entry *e = atomic_load(&t->slots[i]);
        if (!e || e->kind != KERNEL)
            continue;
        for (struct bound *b = atomic_load(&e->bounds); b; b = b->next)
            if (b->handle == f)
                stub = (void *)e->host;
    }
    pthread_mutex_unlock(&lock);
    return stub;
}
