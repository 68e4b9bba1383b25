#ifndef VGPU_DRIVER_FUNCTIONS_H
#define VGPU_DRIVER_FUNCTIONS_H
#define __DRIVER_FUNCTIONS_H__

/* make_cudaExtent and the like. */

#include "driver_types.h"

static inline struct cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t x, size_t y)
{
    struct cudaPitchedPtr v = {p, pitch, x, y};
    return v;
}

static inline struct cudaPos make_cudaPos(size_t x, size_t y, size_t z)
{
    struct cudaPos v = {x, y, z};
    return v;
}

static inline struct cudaExtent make_cudaExtent(size_t w, size_t h, size_t d)
{
    struct cudaExtent v = {w, h, d};
    return v;
}

#endif
