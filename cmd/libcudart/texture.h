#ifndef VGPU_TEXTURE_H
#define VGPU_TEXTURE_H

#include "runtime.h"

/* texture_flags are the driver's flags (CU_TRSF_...) of a texture. */
unsigned texture_flags(CUarray_format f, enum cudaTextureReadMode mode, int normalized, int srgb, int exact);

#endif
