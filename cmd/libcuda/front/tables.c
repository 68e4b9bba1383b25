/* Export tables: functions without names that NVIDIA's own libraries ask for by a number. Those that
 * are plain services are here. The table with which NVIDIA's runtime has the driver prove what it is
 * (d4082055-...) is not: programs linked with that runtime get its own error (docs/cuda.md). */
#define VGPU_CUDA_SYMBOLS
#include "front.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Of runtimes: the primary context of a device, and modules of fat binaries. */

static CUresult primary_context(CUcontext *pctx, CUdevice dev) {
  /* Not retained: the primary context lives while somebody retains it, and from now on the table does. */
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static CUcontext kept;
  unsigned flags;
  int active = 0;
  pthread_mutex_lock(&lock);
  CUresult r = cuDevicePrimaryCtxGetState(dev, &flags, &active);
  if (r == CUDA_SUCCESS && (!kept || !active)) r = cuDevicePrimaryCtxRetain(&kept, dev);
  if (r == CUDA_SUCCESS && pctx) *pctx = kept;
  pthread_mutex_unlock(&lock);
  return r;
}

static CUresult load_fatbin(CUmodule *module, const void *wrapper) { return cuModuleLoadData(module, wrapper); }

static CUresult load_fatbin_ex(CUmodule *module, const void *wrapper, void *options, void *values, unsigned n) {
  return cuModuleLoadDataEx(module, wrapper, n, options, values);
}

static CUresult nothing(void) { return CUDA_SUCCESS; }

static const void *const runtime_table[13] = {
    (void *)sizeof runtime_table, (void *)load_fatbin, (void *)primary_context, NULL, NULL, NULL,
    (void *)load_fatbin_ex, (void *)nothing, (void *)load_fatbin_ex, NULL, NULL, NULL, NULL,
};

/* Of tools: two areas that they write to. */

static uint64_t tools_area[512], tools_small_area[32];

static void area(void **p, size_t *bytes) {
  if (p) *p = tools_area;
  if (bytes) *bytes = sizeof tools_area;
}

static void small_area(void **p, size_t *bytes) {
  if (p) *p = tools_small_area;
  if (bytes) *bytes = sizeof tools_small_area;
}

static const void *const areas_table[7] = {(void *)sizeof areas_table, NULL, (void *)area, NULL, NULL, NULL, (void *)small_area};

static const void *const hooks_table[4] = {(void *)sizeof hooks_table, NULL, NULL, NULL};

static const void *const flags_table[4] = {(void *)sizeof flags_table, NULL, NULL, (void *)nothing};

/* Storage per context: a value for each key. What is left when a context ends can't be found again,
 * since handles are not used twice; its destructor is not called. */

typedef void CUDA_CB destructor(CUcontext ctx, void *key, void *value);

struct item {
  struct item *next;
  CUcontext ctx;
  void *key, *value;
  destructor *destroy;
};

static struct {
  pthread_mutex_t lock;
  struct item *first;
} storage = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUcontext or_current(CUcontext ctx) {
  CUcontext current = NULL;
  if (ctx && ctx != (CUcontext)-1) return ctx;
  cuCtxGetCurrent(&current);
  return current;
}

static struct item **find(CUcontext ctx, void *key) {
  struct item **p = &storage.first;
  while (*p && ((*p)->ctx != ctx || (*p)->key != key)) p = &(*p)->next;
  return p;
}

static CUresult storage_put(CUcontext ctx, void *key, void *value, destructor *destroy) {
  if (!(ctx = or_current(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  struct item *new = malloc(sizeof *new);
  if (!new) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&storage.lock);
  struct item *there = *find(ctx, key);
  if (!there) {
    *new = (struct item){storage.first, ctx, key, value, destroy};
    storage.first = new;
  }
  pthread_mutex_unlock(&storage.lock);
  if (there) free(new);
  return there ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult storage_get(void **value, CUcontext ctx, void *key) {
  if (!(ctx = or_current(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&storage.lock);
  struct item *i = *find(ctx, key);
  if (i && value) *value = i->value;
  pthread_mutex_unlock(&storage.lock);
  return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult storage_delete(CUcontext ctx, void *key) {
  if (!(ctx = or_current(ctx))) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&storage.lock);
  struct item **p = find(ctx, key), *i = *p;
  if (i) *p = i->next;
  pthread_mutex_unlock(&storage.lock);
  free(i);
  return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static const void *const storage_table[] = {(void *)storage_put, (void *)storage_delete, (void *)storage_get};

static const struct {
  unsigned char id[16];
  const void *table;
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, runtime_table},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, areas_table},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, hooks_table},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, storage_table},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e}, flags_table},
};

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    if (memcmp(pExportTableId, tables[i].id, sizeof tables[i].id) == 0) {
      *ppExportTable = tables[i].table;
      return CUDA_SUCCESS;
    }
  }
  *ppExportTable = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
