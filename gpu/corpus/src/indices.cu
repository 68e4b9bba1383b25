// Where a thread is, by the special registers, in blocks and grids of three
// dimensions. Blocks need not be whole warps. Values that no one can predict are
// held against what must be true of them.
extern "C" __global__ void indices(unsigned *out) {
    __shared__ unsigned in_shared;
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned i = block * threads + thread, n = blocks * threads;

    unsigned lane, masks[5], sm, sms, warp, warps;
    unsigned long long before = clock64(), timer;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(masks[0]));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(masks[1]));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(masks[2]));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(masks[3]));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(masks[4]));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer));

    out[0 * n + i] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
    out[1 * n + i] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
    out[2 * n + i] = blockDim.x | blockDim.y << 8 | blockDim.z << 16;
    out[3 * n + i] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
    out[4 * n + i] = lane;
    for (int k = 0; k < 5; k++)
        out[(5 + k) * n + i] = masks[k];
    out[10 * n + i] = (sm < sms) | (warp < warps) << 1 | ((unsigned long long)clock64() >= before) << 2 |
                      (timer != 0) << 3 | (__isShared(&in_shared) != 0) << 4 | (__isGlobal(&in_shared) != 0) << 5 |
                      (__isGlobal(out) != 0) << 6;
}
