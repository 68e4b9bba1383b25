#ifndef VGPU_DEVICE_LAUNCH_PARAMETERS_H
#define VGPU_DEVICE_LAUNCH_PARAMETERS_H
#define __DEVICE_LAUNCH_PARAMETERS_H__

/* The compiler has threadIdx and the like. */
#include "cuda_runtime.h"

#endif
