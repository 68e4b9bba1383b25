#ifndef VGPU_CUDA_RUNTIME_H
#define VGPU_CUDA_RUNTIME_H
#define __CUDA_RUNTIME_H__ /* other headers ask whether these were included by such names */

/* The CUDA runtime for programs: the API, its C++ forms, and device code where clang compiles it. */

#if defined(__CUDA__) && defined(__clang__) && defined(__cplusplus)
#include "crt/host_defines.h"
#include "vector_types.h"
#include "driver_types.h"
#include "crt/device.h"
#endif

#include "cuda_runtime_api.h"
#include "driver_functions.h"
#include "vector_functions.h"

#ifdef __cplusplus
#include "channel_descriptor.h"
#include "cuda_device_runtime_api.h"
#include "crt/runtime_templates.h"
#endif

#endif
