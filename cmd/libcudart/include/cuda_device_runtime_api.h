#ifndef VGPU_CUDA_DEVICE_RUNTIME_API_H
#define VGPU_CUDA_DEVICE_RUNTIME_API_H

/* Device code launches no kernels. */
#include "cuda_runtime_api.h"

#endif
