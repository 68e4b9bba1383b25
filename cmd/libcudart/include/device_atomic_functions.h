#ifndef VGPU_DEVICE_ATOMIC_FUNCTIONS_H
#define VGPU_DEVICE_ATOMIC_FUNCTIONS_H

/* Atomic functions of device code. */
#include "cuda_runtime.h"

#endif
