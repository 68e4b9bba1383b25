#ifndef VGPU_CRT_SURFACE_H
#define VGPU_CRT_SURFACE_H

/* Accesses to surface objects (CUDA C++ Programming Guide, Surface Functions). x counts bytes. The
 * instructions move words; vgpu::surface<bytes> has those for a type of that size. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

namespace vgpu {

template <int bytes> struct surface;

/* The number of an operand depends on how many words there are. */
#define VGPU_MODES(what)                                                                           \
    if (mode == cudaBoundaryModeZero)                                                              \
        what(".zero");                                                                             \
    else if (mode == cudaBoundaryModeClamp)                                                        \
        what(".clamp");                                                                            \
    else                                                                                           \
        what(".trap");

template <> struct surface<1> {
    unsigned short w[1];
    VGPU_DEVICE surface load_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.1d.b8" m " {%0}, [%1, {%2}];"                                     \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x)                                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.1d.b8" m " [%0, {%1}], {%2};"                                     \
                         :                                                                         \
                         : "l"(s), "r"(x), "h"(w[0])                                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.2d.b8" m " {%0}, [%1, {%2, %3}];"                                 \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y)                                                  \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.2d.b8" m " [%0, {%1, %2}], {%3};"                                 \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "h"(w[0])                                       \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.3d.b8" m " {%0}, [%1, {%2, %3, %4, %4}];"                         \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y), "r"(z)                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.3d.b8" m " [%0, {%1, %2, %3, %3}], {%4};"                         \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(z), "h"(w[0])                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a1d.b8" m " {%0}, [%1, {%2, %3}];"                                \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x)                                              \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a1d.b8" m " [%0, {%1, %2}], {%3};"                                \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "h"(w[0])                                   \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a2d.b8" m " {%0}, [%1, {%2, %3, %4, %4}];"                        \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x), "r"(y)                                      \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a2d.b8" m " [%0, {%1, %2, %3, %3}], {%4};"                        \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(y), "h"(w[0])                           \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
};

template <> struct surface<2> {
    unsigned short w[1];
    VGPU_DEVICE surface load_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.1d.b16" m " {%0}, [%1, {%2}];"                                    \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x)                                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.1d.b16" m " [%0, {%1}], {%2};"                                    \
                         :                                                                         \
                         : "l"(s), "r"(x), "h"(w[0])                                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.2d.b16" m " {%0}, [%1, {%2, %3}];"                                \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y)                                                  \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.2d.b16" m " [%0, {%1, %2}], {%3};"                                \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "h"(w[0])                                       \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.3d.b16" m " {%0}, [%1, {%2, %3, %4, %4}];"                        \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y), "r"(z)                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.3d.b16" m " [%0, {%1, %2, %3, %3}], {%4};"                        \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(z), "h"(w[0])                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a1d.b16" m " {%0}, [%1, {%2, %3}];"                               \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x)                                              \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a1d.b16" m " [%0, {%1, %2}], {%3};"                               \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "h"(w[0])                                   \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a2d.b16" m " {%0}, [%1, {%2, %3, %4, %4}];"                       \
                         : "=h"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x), "r"(y)                                      \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a2d.b16" m " [%0, {%1, %2, %3, %3}], {%4};"                       \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(y), "h"(w[0])                           \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
};

template <> struct surface<4> {
    unsigned w[1];
    VGPU_DEVICE surface load_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.1d.b32" m " {%0}, [%1, {%2}];"                                    \
                         : "=r"(v.w[0])                                                            \
                         : "l"(s), "r"(x)                                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.1d.b32" m " [%0, {%1}], {%2};"                                    \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(w[0])                                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.2d.b32" m " {%0}, [%1, {%2, %3}];"                                \
                         : "=r"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y)                                                  \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.2d.b32" m " [%0, {%1, %2}], {%3};"                                \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(w[0])                                       \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.3d.b32" m " {%0}, [%1, {%2, %3, %4, %4}];"                        \
                         : "=r"(v.w[0])                                                            \
                         : "l"(s), "r"(x), "r"(y), "r"(z)                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.3d.b32" m " [%0, {%1, %2, %3, %3}], {%4};"                        \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(z), "r"(w[0])                               \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a1d.b32" m " {%0}, [%1, {%2, %3}];"                               \
                         : "=r"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x)                                              \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a1d.b32" m " [%0, {%1, %2}], {%3};"                               \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(w[0])                                   \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a2d.b32" m " {%0}, [%1, {%2, %3, %4, %4}];"                       \
                         : "=r"(v.w[0])                                                            \
                         : "l"(s), "r"(layer), "r"(x), "r"(y)                                      \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a2d.b32" m " [%0, {%1, %2, %3, %3}], {%4};"                       \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(y), "r"(w[0])                           \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
};

template <> struct surface<8> {
    unsigned w[2];
    VGPU_DEVICE surface load_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.1d.v2.b32" m " {%0, %1}, [%2, {%3}];"                             \
                         : "=r"(v.w[0]), "=r"(v.w[1])                                              \
                         : "l"(s), "r"(x)                                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.1d.v2.b32" m " [%0, {%1}], {%2, %3};"                             \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(w[0]), "r"(w[1])                                    \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.2d.v2.b32" m " {%0, %1}, [%2, {%3, %4}];"                         \
                         : "=r"(v.w[0]), "=r"(v.w[1])                                              \
                         : "l"(s), "r"(x), "r"(y)                                                  \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.2d.v2.b32" m " [%0, {%1, %2}], {%3, %4};"                         \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(w[0]), "r"(w[1])                            \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.3d.v2.b32" m " {%0, %1}, [%2, {%3, %4, %5, %5}];"                 \
                         : "=r"(v.w[0]), "=r"(v.w[1])                                              \
                         : "l"(s), "r"(x), "r"(y), "r"(z)                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.3d.v2.b32" m " [%0, {%1, %2, %3, %3}], {%4, %5};"                 \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(z), "r"(w[0]), "r"(w[1])                    \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a1d.v2.b32" m " {%0, %1}, [%2, {%3, %4}];"                        \
                         : "=r"(v.w[0]), "=r"(v.w[1])                                              \
                         : "l"(s), "r"(layer), "r"(x)                                              \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a1d.v2.b32" m " [%0, {%1, %2}], {%3, %4};"                        \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(w[0]), "r"(w[1])                        \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a2d.v2.b32" m " {%0, %1}, [%2, {%3, %4, %5, %5}];"                \
                         : "=r"(v.w[0]), "=r"(v.w[1])                                              \
                         : "l"(s), "r"(layer), "r"(x), "r"(y)                                      \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a2d.v2.b32" m " [%0, {%1, %2, %3, %3}], {%4, %5};"                \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(y), "r"(w[0]), "r"(w[1])                \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
};

template <> struct surface<16> {
    unsigned w[4];
    VGPU_DEVICE surface load_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.1d.v4.b32" m " {%0, %1, %2, %3}, [%4, {%5}];"                     \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                  \
                         : "l"(s), "r"(x)                                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1d(cudaSurfaceObject_t s, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.1d.v4.b32" m " [%0, {%1}], {%2, %3, %4, %5};"                     \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])              \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.2d.v4.b32" m " {%0, %1, %2, %3}, [%4, {%5, %6}];"                 \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                  \
                         : "l"(s), "r"(x), "r"(y)                                                  \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2d(cudaSurfaceObject_t s, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.2d.v4.b32" m " [%0, {%1, %2}], {%3, %4, %5, %6};"                 \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])      \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.3d.v4.b32" m " {%0, %1, %2, %3}, [%4, {%5, %6, %7, %7}];"         \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                  \
                         : "l"(s), "r"(x), "r"(y), "r"(z)                                          \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_3d(cudaSurfaceObject_t s, int x, int y, int z, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.3d.v4.b32" m " [%0, {%1, %2, %3, %3}], {%4, %5, %6, %7};"         \
                         :                                                                         \
                         : "l"(s), "r"(x), "r"(y), "r"(z), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])\
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a1d.v4.b32" m " {%0, %1, %2, %3}, [%4, {%5, %6}];"                \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                  \
                         : "l"(s), "r"(layer), "r"(x)                                              \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_1dlayered(cudaSurfaceObject_t s, int layer, int x, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a1d.v4.b32" m " [%0, {%1, %2}], {%3, %4, %5, %6};"                \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])  \
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
    VGPU_DEVICE surface load_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode)
    {
        surface v;
#define VGPU_LOAD(m)                                                                               \
    __asm__ __volatile__("suld.b.a2d.v4.b32" m " {%0, %1, %2, %3}, [%4, {%5, %6, %7, %7}];"        \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                  \
                         : "l"(s), "r"(layer), "r"(x), "r"(y)                                      \
                         : "memory")
        VGPU_MODES(VGPU_LOAD)
#undef VGPU_LOAD
        return v;
    }
    __device__ __inline__ __attribute__((always_inline)) void store_2dlayered(cudaSurfaceObject_t s, int layer, int x, int y, cudaSurfaceBoundaryMode mode) const
    {
#define VGPU_STORE(m)                                                                              \
    __asm__ __volatile__("sust.b.a2d.v4.b32" m " [%0, {%1, %2, %3, %3}], {%4, %5, %6, %7};"        \
                         :                                                                         \
                         : "l"(s), "r"(layer), "r"(x), "r"(y), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])\
                         : "memory")
        VGPU_MODES(VGPU_STORE)
#undef VGPU_STORE
    }
};

#undef VGPU_MODES

} // namespace vgpu

#define VGPU_LIST(...) __VA_ARGS__
/* params are in CUDA's order, and args in that of the instructions. */
#define VGPU_SURFACE(name, dims, params, args)                                                     \
    template <class T>                                                                             \
    VGPU_DEVICE void name##read(T *p, cudaSurfaceObject_t s, VGPU_LIST params,                     \
        cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap)                                       \
    {                                                                                              \
        auto w = vgpu::surface<sizeof(T)>::load_##dims(s, VGPU_LIST args, mode);                   \
        memcpy(p, &w, sizeof *p);                                                                  \
    }                                                                                              \
    template <class T>                                                                             \
    VGPU_DEVICE T name##read(cudaSurfaceObject_t s, VGPU_LIST params,                              \
        cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap)                                       \
    {                                                                                              \
        auto w = vgpu::surface<sizeof(T)>::load_##dims(s, VGPU_LIST args, mode);                   \
        T v;                                                                                       \
        memcpy(&v, &w, sizeof v);                                                                  \
        return v;                                                                                  \
    }                                                                                              \
    template <class T>                                                                             \
    VGPU_DEVICE void name##write(T v, cudaSurfaceObject_t s, VGPU_LIST params,                     \
        cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap)                                       \
    {                                                                                              \
        vgpu::surface<sizeof(T)> w;                                                                \
        memset(&w, 0, sizeof w);                                                                   \
        memcpy(&w, &v, sizeof v);                                                                  \
        w.store_##dims(s, VGPU_LIST args, mode);                                                   \
    }
VGPU_SURFACE(surf1D, 1d, (int x), (x))
VGPU_SURFACE(surf2D, 2d, (int x, int y), (x, y))
VGPU_SURFACE(surf3D, 3d, (int x, int y, int z), (x, y, z))
VGPU_SURFACE(surf1DLayered, 1dlayered, (int x, int layer), (layer, x))
VGPU_SURFACE(surf2DLayered, 2dlayered, (int x, int y, int layer), (layer, x, y))
#undef VGPU_SURFACE
#undef VGPU_LIST
#undef VGPU_DEVICE

#endif
