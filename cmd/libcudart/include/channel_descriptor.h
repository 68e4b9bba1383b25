#ifndef VGPU_CHANNEL_DESCRIPTOR_H
#define VGPU_CHANNEL_DESCRIPTOR_H
#define __CHANNEL_DESCRIPTOR_H__

/* cudaCreateChannelDesc<T>: the channels of a type. */

#include "cuda_runtime_api.h"

#ifdef __cplusplus

template <class T> inline cudaChannelFormatDesc cudaCreateChannelDesc()
{
    return cudaCreateChannelDesc(0, 0, 0, 0, cudaChannelFormatKindNone);
}

#define VGPU_CHANNELS(T, n, kind)                                                                  \
    template <> inline cudaChannelFormatDesc cudaCreateChannelDesc<T>()                            \
    {                                                                                              \
        const int b = 8 * (int)sizeof(T) / n;                                                      \
        return cudaCreateChannelDesc(b, n > 1 ? b : 0, n > 2 ? b : 0, n > 3 ? b : 0, kind);        \
    }
#define VGPU_CHANNELS124(T, kind)                                                                  \
    VGPU_CHANNELS(T##1, 1, kind)                                                                   \
    VGPU_CHANNELS(T##2, 2, kind)                                                                   \
    VGPU_CHANNELS(T##4, 4, kind)
VGPU_CHANNELS(char, 1, cudaChannelFormatKindSigned)
VGPU_CHANNELS(signed char, 1, cudaChannelFormatKindSigned)
VGPU_CHANNELS(unsigned char, 1, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS(short, 1, cudaChannelFormatKindSigned)
VGPU_CHANNELS(unsigned short, 1, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS(int, 1, cudaChannelFormatKindSigned)
VGPU_CHANNELS(unsigned int, 1, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS(float, 1, cudaChannelFormatKindFloat)
VGPU_CHANNELS124(char, cudaChannelFormatKindSigned)
VGPU_CHANNELS124(uchar, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS124(short, cudaChannelFormatKindSigned)
VGPU_CHANNELS124(ushort, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS124(int, cudaChannelFormatKindSigned)
VGPU_CHANNELS124(uint, cudaChannelFormatKindUnsigned)
VGPU_CHANNELS124(float, cudaChannelFormatKindFloat)
#undef VGPU_CHANNELS
#undef VGPU_CHANNELS124

#endif

#endif
