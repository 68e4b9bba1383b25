#ifndef VGPU_CUDA_PROFILER_API_H
#define VGPU_CUDA_PROFILER_API_H
#define __CUDA_PROFILER_H__

/* cudaProfilerStart and cudaProfilerStop. */
#include "cuda_runtime_api.h"

#endif
