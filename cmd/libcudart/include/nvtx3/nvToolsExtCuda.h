#ifndef VGPU_NVTX3_NVTOOLSEXTCUDA_H
#define VGPU_NVTX3_NVTOOLSEXTCUDA_H

/* NVTX 3 has its headers in a folder of their own. */
#include "../nvToolsExtCuda.h"

#endif
