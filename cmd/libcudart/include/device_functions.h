#ifndef VGPU_DEVICE_FUNCTIONS_H
#define VGPU_DEVICE_FUNCTIONS_H
#define __DEVICE_FUNCTIONS_H__

/* cuda_runtime.h has it all. */
#include "cuda_runtime.h"

#endif
