#ifndef VGPU_SURFACE_TYPES_H
#define VGPU_SURFACE_TYPES_H

/* Types of surfaces. */
#include "texture_types.h"

#endif
