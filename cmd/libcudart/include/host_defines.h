#ifndef VGPU_HOST_DEFINES_H
#define VGPU_HOST_DEFINES_H

/* Attributes of functions. */
#include "crt/host_defines.h"

#endif
