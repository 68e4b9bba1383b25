#ifndef VGPU_SM_30_INTRINSICS_H
#define VGPU_SM_30_INTRINSICS_H

/* Intrinsics of device code. */
#include "cuda_runtime.h"

#endif
