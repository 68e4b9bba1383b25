/* Arrays (CUDA Runtime API, Memory Management). A cudaArray_t is the driver's CUarray. */

#include "runtime.h"

/* Formats that are more than a channel's size and kind have the same meaning in both APIs. */
static const struct {
    enum cudaChannelFormatKind kind;
    CUarray_format format;
    int bits[4];
} special[] = {
    {cudaChannelFormatKindUnsignedNormalized8X1, CU_AD_FORMAT_UNORM_INT8X1, {8}},
    {cudaChannelFormatKindUnsignedNormalized8X2, CU_AD_FORMAT_UNORM_INT8X2, {8, 8}},
    {cudaChannelFormatKindUnsignedNormalized8X4, CU_AD_FORMAT_UNORM_INT8X4, {8, 8, 8, 8}},
    {cudaChannelFormatKindUnsignedNormalized16X1, CU_AD_FORMAT_UNORM_INT16X1, {16}},
    {cudaChannelFormatKindUnsignedNormalized16X2, CU_AD_FORMAT_UNORM_INT16X2, {16, 16}},
    {cudaChannelFormatKindUnsignedNormalized16X4, CU_AD_FORMAT_UNORM_INT16X4, {16, 16, 16, 16}},
    {cudaChannelFormatKindSignedNormalized8X1, CU_AD_FORMAT_SNORM_INT8X1, {8}},
    {cudaChannelFormatKindSignedNormalized8X2, CU_AD_FORMAT_SNORM_INT8X2, {8, 8}},
    {cudaChannelFormatKindSignedNormalized8X4, CU_AD_FORMAT_SNORM_INT8X4, {8, 8, 8, 8}},
    {cudaChannelFormatKindSignedNormalized16X1, CU_AD_FORMAT_SNORM_INT16X1, {16}},
    {cudaChannelFormatKindSignedNormalized16X2, CU_AD_FORMAT_SNORM_INT16X2, {16, 16}},
    {cudaChannelFormatKindSignedNormalized16X4, CU_AD_FORMAT_SNORM_INT16X4, {16, 16, 16, 16}},
};

CUresult array_format(const struct cudaChannelFormatDesc *d, CUarray_format *f, unsigned *channels)
{
    const int bits[] = {d->x, d->y, d->z, d->w};
    unsigned n = 0;
    while (n < 4 && bits[n])
        n++;
    for (unsigned i = 0; i < 4; i++)
        if (bits[i] != (i < n ? d->x : 0))
            return (CUresult)cudaErrorInvalidChannelDescriptor;
    if (n == 0 || n == 3)
        return (CUresult)cudaErrorInvalidChannelDescriptor;
    *channels = n;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].kind == d->f) {
            *f = special[i].format;
            return memcmp(bits, special[i].bits, sizeof bits) == 0
                       ? CUDA_SUCCESS
                       : (CUresult)cudaErrorInvalidChannelDescriptor;
        }
    switch ((int)d->f << 8 | d->x) {
    case cudaChannelFormatKindSigned << 8 | 8:
        *f = CU_AD_FORMAT_SIGNED_INT8;
        break;
    case cudaChannelFormatKindSigned << 8 | 16:
        *f = CU_AD_FORMAT_SIGNED_INT16;
        break;
    case cudaChannelFormatKindSigned << 8 | 32:
        *f = CU_AD_FORMAT_SIGNED_INT32;
        break;
    case cudaChannelFormatKindUnsigned << 8 | 8:
        *f = CU_AD_FORMAT_UNSIGNED_INT8;
        break;
    case cudaChannelFormatKindUnsigned << 8 | 16:
        *f = CU_AD_FORMAT_UNSIGNED_INT16;
        break;
    case cudaChannelFormatKindUnsigned << 8 | 32:
        *f = CU_AD_FORMAT_UNSIGNED_INT32;
        break;
    case cudaChannelFormatKindFloat << 8 | 16:
        *f = CU_AD_FORMAT_HALF;
        break;
    case cudaChannelFormatKindFloat << 8 | 32:
        *f = CU_AD_FORMAT_FLOAT;
        break;
    default:
        return (CUresult)cudaErrorInvalidChannelDescriptor;
    }
    return CUDA_SUCCESS;
}

CUresult channel_desc(CUarray_format f, unsigned channels, struct cudaChannelFormatDesc *d)
{
    int bits;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].format == f) {
            const int *b = special[i].bits;
            *d = (struct cudaChannelFormatDesc){b[0], b[1], b[2], b[3], special[i].kind};
            return CUDA_SUCCESS;
        }
    switch (f) {
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
        d->f = cudaChannelFormatKindSigned;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_UNSIGNED_INT32:
        d->f = cudaChannelFormatKindUnsigned;
        break;
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT:
        d->f = cudaChannelFormatKindFloat;
        break;
    default:
        return (CUresult)cudaErrorInvalidChannelDescriptor;
    }
    bits = 8 * (int)format_bytes(f);
    d->x = bits;
    d->y = channels > 1 ? bits : 0;
    d->z = channels > 2 ? bits : 0;
    d->w = channels > 3 ? bits : 0;
    return CUDA_SUCCESS;
}

size_t format_bytes(CUarray_format f)
{
    switch (f) {
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNSIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].format == f)
            return (size_t)special[i].bits[0] / 8;
    return 1;
}

EXPORT struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
    enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

static CUresult description(const struct cudaChannelFormatDesc *d, struct cudaExtent e, unsigned flags,
    CUDA_ARRAY3D_DESCRIPTOR *a)
{
    *a = (CUDA_ARRAY3D_DESCRIPTOR){.Width = e.width, .Height = e.height, .Depth = e.depth, .Flags = flags};
    return d ? array_format(d, &a->Format, &a->NumChannels) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *d,
    struct cudaExtent e, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR a;
    if (!array)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(description(d, e, flags, &a));
    return done(driver.cuArray3DCreate_v2((CUarray *)array, &a));
}

EXPORT cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *d,
    size_t width, size_t height, unsigned flags)
{
    return cudaMalloc3DArray(array, d, (struct cudaExtent){width, height, 0}, flags);
}

EXPORT cudaError_t cudaFreeArray(cudaArray_t array)
{
    READY;
    return array ? done(driver.cuArrayDestroy((CUarray)array)) : cudaSuccess;
}

EXPORT cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
    const struct cudaChannelFormatDesc *d, struct cudaExtent e, unsigned levels, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR a;
    if (!array)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(description(d, e, flags, &a));
    return done(driver.cuMipmappedArrayCreate((CUmipmappedArray *)array, &a, levels));
}

EXPORT cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array)
{
    READY;
    return array ? done(driver.cuMipmappedArrayDestroy((CUmipmappedArray)array)) : cudaSuccess;
}

EXPORT cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *level, cudaMipmappedArray_const_t array, unsigned n)
{
    READY;
    return done(driver.cuMipmappedArrayGetLevel((CUarray *)level, (CUmipmappedArray)(uintptr_t)array, n));
}

EXPORT cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *d, struct cudaExtent *e,
    unsigned *flags, cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR a;
    READY;
    TRY(driver.cuArray3DGetDescriptor_v2(&a, (CUarray)array));
    if (d)
        TRY(channel_desc(a.Format, a.NumChannels, d));
    if (e)
        *e = (struct cudaExtent){a.Width, a.Height, a.Depth};
    if (flags)
        *flags = a.Flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *d, cudaArray_const_t array)
{
    return cudaArrayGetInfo(d, NULL, NULL, (cudaArray_t)(uintptr_t)array);
}

EXPORT cudaError_t cudaArrayGetPlane(cudaArray_t *plane, cudaArray_t array, unsigned i)
{
    READY;
    return done(driver.cuArrayGetPlane((CUarray *)plane, (CUarray)array, i));
}

EXPORT cudaError_t cudaArrayGetMemoryRequirements(struct cudaArrayMemoryRequirements *m,
    cudaArray_t array, int device)
{
    READY;
    return done(driver.cuArrayGetMemoryRequirements((CUDA_ARRAY_MEMORY_REQUIREMENTS *)m, (CUarray)array, device));
}

EXPORT cudaError_t cudaMipmappedArrayGetMemoryRequirements(struct cudaArrayMemoryRequirements *m,
    cudaMipmappedArray_t array, int device)
{
    READY;
    return done(driver.cuMipmappedArrayGetMemoryRequirements((CUDA_ARRAY_MEMORY_REQUIREMENTS *)m,
        (CUmipmappedArray)array, device));
}

EXPORT cudaError_t cudaArrayGetSparseProperties(struct cudaArraySparseProperties *p, cudaArray_t array)
{
    READY;
    return done(driver.cuArrayGetSparseProperties((CUDA_ARRAY_SPARSE_PROPERTIES *)p, (CUarray)array));
}

EXPORT cudaError_t cudaMipmappedArrayGetSparseProperties(struct cudaArraySparseProperties *p,
    cudaMipmappedArray_t array)
{
    READY;
    return done(driver.cuMipmappedArrayGetSparseProperties((CUDA_ARRAY_SPARSE_PROPERTIES *)p,
        (CUmipmappedArray)array));
}
