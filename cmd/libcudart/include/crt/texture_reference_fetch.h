#ifndef VGPU_CRT_TEXTURE_REFERENCE_FETCH_H
#define VGPU_CRT_TEXTURE_REFERENCE_FETCH_H

/* Fetches from texture references (CUDA C++ Programming Guide 11, Texture Functions), over the
 * compiler's handler. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

/* What a fetch returns: elements, or as many floats. */
template <class T, enum cudaTextureReadMode M> struct vgpu_texel {
    typedef T type;
};
#define VGPU_TEXEL(T, F)                                                                           \
    template <> struct vgpu_texel<T, cudaReadModeNormalizedFloat> {                                \
        typedef F type;                                                                            \
    };
#define VGPU_TEXELS(T)                                                                             \
    VGPU_TEXEL(T##1, float1)                                                                       \
    VGPU_TEXEL(T##2, float2)                                                                       \
    VGPU_TEXEL(T##4, float4)
VGPU_TEXEL(char, float)
VGPU_TEXEL(signed char, float)
VGPU_TEXEL(unsigned char, float)
VGPU_TEXEL(short, float)
VGPU_TEXEL(unsigned short, float)
VGPU_TEXELS(char)
VGPU_TEXELS(uchar)
VGPU_TEXELS(short)
VGPU_TEXELS(ushort)
#undef VGPU_TEXEL
#undef VGPU_TEXELS

#define VGPU_LIST(...) __VA_ARGS__
#define VGPU_FETCH(name, dimensions, op, params, args)                                             \
    template <class T, enum cudaTextureReadMode M>                                                 \
    VGPU_DEVICE typename vgpu_texel<T, M>::type name(texture<T, dimensions, M> t, VGPU_LIST params) \
    {                                                                                              \
        typename vgpu_texel<T, M>::type v;                                                         \
        __nv_tex_surf_handler(op, &v, t, VGPU_LIST args);                                          \
        return v;                                                                                  \
    }

VGPU_FETCH(tex1Dfetch, cudaTextureType1D, "__itex1Dfetch", (int x), (x))
VGPU_FETCH(tex1D, cudaTextureType1D, "__itex1D", (float x), (x))
VGPU_FETCH(tex2D, cudaTextureType2D, "__itex2D", (float x, float y), (x, y))
VGPU_FETCH(tex3D, cudaTextureType3D, "__itex3D", (float x, float y, float z), (x, y, z))
VGPU_FETCH(tex1DLayered, cudaTextureType1DLayered, "__itex1DLayered", (float x, int layer), (x, layer))
VGPU_FETCH(tex2DLayered, cudaTextureType2DLayered, "__itex2DLayered", (float x, float y, int layer), (x, y, layer))
VGPU_FETCH(texCubemap, cudaTextureTypeCubemap, "__itexCubemap", (float x, float y, float z), (x, y, z))
VGPU_FETCH(tex1DLod, cudaTextureType1D, "__itex1DLod", (float x, float level), (x, level))
VGPU_FETCH(tex2DLod, cudaTextureType2D, "__itex2DLod", (float x, float y, float level), (x, y, level))
VGPU_FETCH(tex3DLod, cudaTextureType3D, "__itex3DLod", (float x, float y, float z, float level), (x, y, z, level))

#undef VGPU_FETCH
#undef VGPU_LIST
#undef VGPU_DEVICE

#endif
