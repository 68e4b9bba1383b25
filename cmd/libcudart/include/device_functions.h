#ifndef VGPU_DEVICE_FUNCTIONS_H
#define VGPU_DEVICE_FUNCTIONS_H

/* cuda_runtime.h has it all. */
#include "cuda_runtime.h"

#endif
