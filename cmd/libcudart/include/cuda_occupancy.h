#ifndef VGPU_CUDA_OCCUPANCY_H
#define VGPU_CUDA_OCCUPANCY_H

/* Programs include this for CUDA's calculator of occupancy without a device. The runtime's functions
 * (cudaOccupancyMaxActiveBlocksPerMultiprocessor and others) are what is here. */
#include "cuda_runtime_api.h"

#endif
