#ifndef VGPU_CRT_TEXTURE_REFERENCE_H
#define VGPU_CRT_TEXTURE_REFERENCE_H

/* Texture references of CUDA 11 (CUDA C++ Programming Guide 11, Texture Reference API). The compiler
 * knows the type: in device code a variable of it is what PTX calls a .texref. */

#include "../texture_types.h"

template <class T> inline cudaChannelFormatDesc cudaCreateChannelDesc();

template <class T, int Dimensions = cudaTextureType1D, enum cudaTextureReadMode Mode = cudaReadModeElementType>
struct __attribute__((device_builtin_texture_type)) texture : public textureReference {
    texture(int normal = 0, enum cudaTextureFilterMode filter = cudaFilterModePoint,
        enum cudaTextureAddressMode address = cudaAddressModeClamp)
        : texture(normal, filter, address, cudaCreateChannelDesc<T>())
    {
    }
    texture(int normal, enum cudaTextureFilterMode filter, enum cudaTextureAddressMode address,
        struct cudaChannelFormatDesc d)
        : textureReference()
    {
        normalized = normal;
        filterMode = filter;
        addressMode[0] = addressMode[1] = addressMode[2] = address;
        channelDesc = d;
    }
};

#endif
