#ifndef VGPU_CRT_TEXTURE_FETCH_H
#define VGPU_CRT_TEXTURE_FETCH_H

/* Fetches from texture objects (CUDA C++ Programming Guide, Texture Functions), over the compiler's
 * handler. Each has a form that returns the value and one that stores it. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))
#define VGPU_LIST(...) __VA_ARGS__
#define VGPU_FETCH(name, op, params, args)                                                         \
    template <class T> VGPU_DEVICE void name(T *p, cudaTextureObject_t t, VGPU_LIST params)        \
    {                                                                                              \
        __nv_tex_surf_handler(op, p, t, VGPU_LIST args);                                           \
    }                                                                                              \
    template <class T> VGPU_DEVICE T name(cudaTextureObject_t t, VGPU_LIST params)                 \
    {                                                                                              \
        T v;                                                                                       \
        __nv_tex_surf_handler(op, &v, t, VGPU_LIST args);                                          \
        return v;                                                                                  \
    }

VGPU_FETCH(tex1Dfetch, "__itex1Dfetch", (int x), (x))
VGPU_FETCH(tex1D, "__itex1D", (float x), (x))
VGPU_FETCH(tex2D, "__itex2D", (float x, float y), (x, y))
VGPU_FETCH(tex3D, "__itex3D", (float x, float y, float z), (x, y, z))
VGPU_FETCH(tex1DLayered, "__itex1DLayered", (float x, int layer), (x, layer))
VGPU_FETCH(tex2DLayered, "__itex2DLayered", (float x, float y, int layer), (x, y, layer))
VGPU_FETCH(texCubemap, "__itexCubemap", (float x, float y, float z), (x, y, z))
VGPU_FETCH(texCubemapLayered, "__itexCubemapLayered", (float x, float y, float z, int layer), (x, y, z, layer))
VGPU_FETCH(tex1DLod, "__itex1DLod", (float x, float level), (x, level))
VGPU_FETCH(tex2DLod, "__itex2DLod", (float x, float y, float level), (x, y, level))
VGPU_FETCH(tex3DLod, "__itex3DLod", (float x, float y, float z, float level), (x, y, z, level))
VGPU_FETCH(tex1DLayeredLod, "__itex1DLayeredLod", (float x, int layer, float level), (x, layer, level))
VGPU_FETCH(tex2DLayeredLod, "__itex2DLayeredLod", (float x, float y, int layer, float level), (x, y, layer, level))
VGPU_FETCH(texCubemapLod, "__itexCubemapLod", (float x, float y, float z, float level), (x, y, z, level))
VGPU_FETCH(tex1DGrad, "__itex1DGrad", (float x, float dx, float dy), (x, dx, dy))
VGPU_FETCH(tex2DGrad, "__itex2DGrad_v2", (float x, float y, float2 dx, float2 dy), (x, y, &dx, &dy))
VGPU_FETCH(tex3DGrad, "__itex3DGrad_v2", (float x, float y, float z, float4 dx, float4 dy), (x, y, z, &dx, &dy))
VGPU_FETCH(tex2Dgather, "__itex2Dgather", (float x, float y, int component = 0), (x, y, component))

#undef VGPU_FETCH
#undef VGPU_LIST
#undef VGPU_DEVICE

#endif
