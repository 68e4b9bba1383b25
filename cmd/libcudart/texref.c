/* Texture and surface references, which CUDA 12 removed (CUDA Runtime API 11, Texture Reference
 * Management and Surface Reference Management). A reference is a host variable that the program was
 * compiled with; what it is bound to is kept by the driver's reference of the same name. */

#include "texture.h"

#if MAJOR < 12

/* set_up gives the driver's reference what the host variable says. */
static CUresult set_up(CUtexref t, const struct textureReference *ref, enum cudaTextureReadMode mode,
    const struct cudaChannelFormatDesc *d, CUarray_format *format, unsigned *channels)
{
    CUresult r = array_format(d, format, channels);
    for (int i = 0; r == CUDA_SUCCESS && i < 3; i++)
        r = driver.cuTexRefSetAddressMode(t, i, (CUaddress_mode)ref->addressMode[i]);
    if (r == CUDA_SUCCESS)
        r = driver.cuTexRefSetFilterMode(t, (CUfilter_mode)ref->filterMode);
    if (r == CUDA_SUCCESS)
        r = driver.cuTexRefSetFormat(t, *format, (int)*channels);
    if (r == CUDA_SUCCESS)
        r = driver.cuTexRefSetFlags(t,
            texture_flags(*format, mode, ref->normalized, ref->sRGB, ref->disableTrilinearOptimization));
    return r;
}

EXPORT cudaError_t cudaBindTexture(size_t *offset, const struct textureReference *ref, const void *p,
    const struct cudaChannelFormatDesc *d, size_t size)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    CUarray_format f;
    unsigned channels;
    size_t off, whole;
    CUdeviceptr start;
    if (!ref || !d)
        return fail(cudaErrorInvalidValue);
    TRY(texref_of(ref, &t, &mode));
    TRY(set_up(t, ref, mode, d, &f, &channels));
    /* A program that gives no size, which then is UINT_MAX, means all that there is. */
    TRY(driver.cuMemGetAddressRange_v2(&start, &whole, DEVICE_PTR(p)));
    if (size > start + whole - DEVICE_PTR(p))
        size = start + whole - DEVICE_PTR(p);
    TRY(driver.cuTexRefSetAddress_v2(&off, t, DEVICE_PTR(p), size));
    if (offset)
        *offset = off;
    else if (off)
        return fail(cudaErrorInvalidValue);
    return cudaSuccess;
}

EXPORT cudaError_t cudaBindTexture2D(size_t *offset, const struct textureReference *ref, const void *p,
    const struct cudaChannelFormatDesc *d, size_t width, size_t height, size_t pitch)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    CUDA_ARRAY_DESCRIPTOR a = {.Width = width, .Height = height};
    if (!ref || !d)
        return fail(cudaErrorInvalidValue);
    TRY(texref_of(ref, &t, &mode));
    TRY(set_up(t, ref, mode, d, &a.Format, &a.NumChannels));
    TRY(driver.cuTexRefSetAddress2D_v3(t, &a, DEVICE_PTR(p), pitch));
    if (offset)
        *offset = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaBindTextureToArray(const struct textureReference *ref, cudaArray_const_t array,
    const struct cudaChannelFormatDesc *d)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    CUarray_format f;
    unsigned channels;
    if (!ref || !d)
        return fail(cudaErrorInvalidValue);
    TRY(texref_of(ref, &t, &mode));
    TRY(set_up(t, ref, mode, d, &f, &channels));
    return done(driver.cuTexRefSetArray(t, (CUarray)(uintptr_t)array, CU_TRSA_OVERRIDE_FORMAT));
}

EXPORT cudaError_t cudaBindTextureToMipmappedArray(const struct textureReference *ref,
    cudaMipmappedArray_const_t array, const struct cudaChannelFormatDesc *d)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    CUarray_format f;
    unsigned channels;
    if (!ref || !d)
        return fail(cudaErrorInvalidValue);
    TRY(texref_of(ref, &t, &mode));
    TRY(set_up(t, ref, mode, d, &f, &channels));
    return done(driver.cuTexRefSetMipmappedArray(t, (CUmipmappedArray)(uintptr_t)array, CU_TRSA_OVERRIDE_FORMAT));
}

EXPORT cudaError_t cudaUnbindTexture(const struct textureReference *ref)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    size_t off;
    TRY(texref_of(ref, &t, &mode));
    return done(driver.cuTexRefSetAddress_v2(&off, t, 0, 0));
}

EXPORT cudaError_t cudaGetTextureAlignmentOffset(size_t *offset, const struct textureReference *ref)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    CUdeviceptr p;
    CUdevice d;
    int align;
    if (!offset)
        return fail(cudaErrorInvalidValue);
    TRY(texref_of(ref, &t, &mode));
    TRY(driver.cuTexRefGetAddress_v2(&p, t));
    TRY(driver.cuCtxGetDevice(&d));
    TRY(driver.cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, d));
    *offset = align ? p % (unsigned)align : 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetTextureReference(const struct textureReference **ref, const void *symbol)
{
    CUtexref t;
    enum cudaTextureReadMode mode;
    TRY(texref_of(symbol, &t, &mode));
    *ref = symbol;
    return cudaSuccess;
}

EXPORT cudaError_t cudaBindSurfaceToArray(const struct surfaceReference *ref, cudaArray_const_t array,
    const struct cudaChannelFormatDesc *d)
{
    CUsurfref s;
    (void)d;
    TRY(surfref_of(ref, &s));
    return done(driver.cuSurfRefSetArray(s, (CUarray)(uintptr_t)array, 0));
}

EXPORT cudaError_t cudaGetSurfaceReference(const struct surfaceReference **ref, const void *symbol)
{
    CUsurfref s;
    TRY(surfref_of(symbol, &s));
    *ref = symbol;
    return cudaSuccess;
}

#endif
