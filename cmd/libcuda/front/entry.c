/* Names of functions and errors. */
#define VGPU_CUDA_SYMBOLS
#include "front.h"
#include "names.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 13000 };

CUresult cuDriverGetVersion(int *driverVersion) {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = VERSION;
  return CUDA_SUCCESS;
}

static int by_number(const void *key, const void *error) {
  uint32_t k = *(const uint32_t *)key, n = ((const struct vgpu_error *)error)->number;
  return k < n ? -1 : k > n;
}

static const struct vgpu_error *find_error(uint32_t number) {
  return bsearch(&number, vgpu_errors, vgpu_error_count, sizeof *vgpu_errors, by_number);
}

CUresult cuGetErrorName(CUresult error, const char **pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_error *e = find_error(error);
  *pStr = e ? e->name : NULL;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const struct vgpu_error *e = find_error(error);
  *pStr = e ? e->text : NULL;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the first entry with a name, or NULL. */
static const struct vgpu_name *find_name(const char *name) {
  unsigned low = 0, high = vgpu_name_count;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (strcmp(vgpu_names[middle].base, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low < vgpu_name_count && strcmp(vgpu_names[low].base, name) == 0 ? &vgpu_names[low] : NULL;
}

/* Finds the newest version of a function that is not newer than cudaVersion. */
static CUresult entry_point(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, int per_thread,
                            CUdriverProcAddressQueryResult *status) {
  enum { KNOWN_FLAGS = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
  if (!symbol || !pfn || (flags & ~(cuuint64_t)KNOWN_FLAGS) || flags == KNOWN_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  *pfn = NULL;
  const struct vgpu_name *n = find_name(symbol);
  CUdriverProcAddressQueryResult found = n ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (; n && n < vgpu_names + vgpu_name_count && strcmp(n->base, symbol) == 0; n++) {
    if (n->since > cudaVersion) continue;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) per_thread = 1;
    if (flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM) per_thread = 0;
    *pfn = (void *)(per_thread ? n->per_thread : n->function);
    found = CU_GET_PROC_ADDRESS_SUCCESS;
    break;
  }
  if (status) *status = found;
  return found == CU_GET_PROC_ADDRESS_SUCCESS || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
  return entry_point(symbol, pfn, cudaVersion, flags, 0, NULL);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus) {
  return entry_point(symbol, pfn, cudaVersion, flags, 0, symbolStatus);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus) {
  return entry_point(symbol, pfn, cudaVersion, flags, 1, symbolStatus);
}
