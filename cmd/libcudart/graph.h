#ifndef VGPU_GRAPH_H
#define VGPU_GRAPH_H

#include "runtime.h"

/* kernel_params and the like say a node's parameters in the driver's form. */
CUresult kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *d);
CUresult memset_params(const struct cudaMemsetParams *p, CUDA_MEMSET_NODE_PARAMS *d);

#endif
