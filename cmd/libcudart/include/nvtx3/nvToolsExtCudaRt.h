#ifndef VGPU_NVTX3_NVTOOLSEXTCUDART_H
#define VGPU_NVTX3_NVTOOLSEXTCUDART_H

/* NVTX 3 has its headers in a folder of their own. */
#include "../nvToolsExtCudaRt.h"

#endif
