#ifndef VGPU_CUDA_PROFILER_API_H
#define VGPU_CUDA_PROFILER_API_H

/* cudaProfilerStart and cudaProfilerStop. */
#include "cuda_runtime_api.h"

#endif
