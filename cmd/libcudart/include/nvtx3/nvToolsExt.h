#ifndef VGPU_NVTX3_NVTOOLSEXT_H
#define VGPU_NVTX3_NVTOOLSEXT_H

/* NVTX 3 has its headers in a folder of their own. */
#include "../nvToolsExt.h"

#endif
