#ifndef VGPU_BUILTIN_TYPES_H
#define VGPU_BUILTIN_TYPES_H
#define __BUILTIN_TYPES_H__

/* Types of the runtime API. */
#include "driver_types.h"

#endif
