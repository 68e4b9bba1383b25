#ifndef VGPU_SURFACE_TYPES_H
#define VGPU_SURFACE_TYPES_H
#define __SURFACE_TYPES_H__

/* Types of surfaces. */
#include "texture_types.h"

#endif
