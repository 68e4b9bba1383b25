#ifndef VGPU_CUDA_TEXTURE_TYPES_H
#define VGPU_CUDA_TEXTURE_TYPES_H

/* Types of textures. */
#include "texture_types.h"

#endif
