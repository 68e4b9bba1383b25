#ifndef VGPU_CG_REDUCE_H
#define VGPU_CG_REDUCE_H

/* cooperative_groups.h has it all. */
#include "../cooperative_groups.h"

#endif
