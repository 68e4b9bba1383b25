#ifndef VGPU_CG_SCAN_H
#define VGPU_CG_SCAN_H

/* cooperative_groups.h has it all. */
#include "../cooperative_groups.h"

#endif
