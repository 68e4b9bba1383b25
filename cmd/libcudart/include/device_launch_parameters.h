#ifndef VGPU_DEVICE_LAUNCH_PARAMETERS_H
#define VGPU_DEVICE_LAUNCH_PARAMETERS_H

/* The compiler has threadIdx and the like. */
#include "cuda_runtime.h"

#endif
