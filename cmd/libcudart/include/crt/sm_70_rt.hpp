#ifndef VGPU_CRT_SM_70_RT_HPP
#define VGPU_CRT_SM_70_RT_HPP

/* What the compiler's header for warp intrinsics includes: __match_any_sync and __match_all_sync
 * for the types that CUDA has them for. */

#define VGPU_MATCH(T, bits, U)                                                                     \
    __device__ inline unsigned __match_any_sync(unsigned mask, T value)                            \
    {                                                                                              \
        U bits_;                                                                                   \
        memcpy(&bits_, &value, sizeof bits_);                                                      \
        return __match##bits##_any_sync(mask, bits_);                                              \
    }                                                                                              \
    __device__ inline unsigned __match_all_sync(unsigned mask, T value, int *pred)                 \
    {                                                                                              \
        U bits_;                                                                                   \
        memcpy(&bits_, &value, sizeof bits_);                                                      \
        return __match##bits##_all_sync(mask, bits_, pred);                                        \
    }
VGPU_MATCH(int, 32, unsigned)
VGPU_MATCH(unsigned, 32, unsigned)
VGPU_MATCH(float, 32, unsigned)
VGPU_MATCH(long, 64, unsigned long long)
VGPU_MATCH(unsigned long, 64, unsigned long long)
VGPU_MATCH(long long, 64, unsigned long long)
VGPU_MATCH(unsigned long long, 64, unsigned long long)
VGPU_MATCH(double, 64, unsigned long long)
#undef VGPU_MATCH

#endif
