#ifndef VGPU_MATH_FUNCTIONS_H
#define VGPU_MATH_FUNCTIONS_H
#define __MATH_FUNCTIONS_H__

/* Mathematical functions of device code. */
#include "cuda_runtime.h"

#endif
