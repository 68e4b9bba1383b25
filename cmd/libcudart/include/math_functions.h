#ifndef VGPU_MATH_FUNCTIONS_H
#define VGPU_MATH_FUNCTIONS_H

/* Mathematical functions of device code. */
#include "cuda_runtime.h"

#endif
