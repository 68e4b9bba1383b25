/* Texture and surface objects (CUDA Runtime API, Texture Object Management and Surface Object
 * Management). */

#include "texture.h"

static CUresult resource(const struct cudaResourceDesc *r, CUDA_RESOURCE_DESC *d)
{
    *d = (CUDA_RESOURCE_DESC){.resType = (CUresourcetype)r->resType};
    switch (r->resType) {
    case cudaResourceTypeArray:
        d->res.array.hArray = (CUarray)r->res.array.array;
        return CUDA_SUCCESS;
    case cudaResourceTypeMipmappedArray:
        d->res.mipmap.hMipmappedArray = (CUmipmappedArray)r->res.mipmap.mipmap;
        return CUDA_SUCCESS;
    case cudaResourceTypeLinear:
        d->res.linear.devPtr = DEVICE_PTR(r->res.linear.devPtr);
        d->res.linear.sizeInBytes = r->res.linear.sizeInBytes;
        return array_format(&r->res.linear.desc, &d->res.linear.format, &d->res.linear.numChannels);
    case cudaResourceTypePitch2D:
        d->res.pitch2D.devPtr = DEVICE_PTR(r->res.pitch2D.devPtr);
        d->res.pitch2D.width = r->res.pitch2D.width;
        d->res.pitch2D.height = r->res.pitch2D.height;
        d->res.pitch2D.pitchInBytes = r->res.pitch2D.pitchInBytes;
        return array_format(&r->res.pitch2D.desc, &d->res.pitch2D.format, &d->res.pitch2D.numChannels);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult resource_back(const CUDA_RESOURCE_DESC *d, struct cudaResourceDesc *r)
{
    memset(r, 0, sizeof *r);
    r->resType = (enum cudaResourceType)d->resType;
    switch (r->resType) {
    case cudaResourceTypeArray:
        r->res.array.array = (cudaArray_t)d->res.array.hArray;
        return CUDA_SUCCESS;
    case cudaResourceTypeMipmappedArray:
        r->res.mipmap.mipmap = (cudaMipmappedArray_t)d->res.mipmap.hMipmappedArray;
        return CUDA_SUCCESS;
    case cudaResourceTypeLinear:
        r->res.linear.devPtr = HOST_PTR(d->res.linear.devPtr);
        r->res.linear.sizeInBytes = d->res.linear.sizeInBytes;
        return channel_desc(d->res.linear.format, d->res.linear.numChannels, &r->res.linear.desc);
    case cudaResourceTypePitch2D:
        r->res.pitch2D.devPtr = HOST_PTR(d->res.pitch2D.devPtr);
        r->res.pitch2D.width = d->res.pitch2D.width;
        r->res.pitch2D.height = d->res.pitch2D.height;
        r->res.pitch2D.pitchInBytes = d->res.pitch2D.pitchInBytes;
        return channel_desc(d->res.pitch2D.format, d->res.pitch2D.numChannels, &r->res.pitch2D.desc);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* reads_integers reports whether a texture of this resource gives integers as they are. */
static bool reads_integers(CUarray_format f, enum cudaTextureReadMode mode)
{
    return mode == cudaReadModeElementType && f != CU_AD_FORMAT_HALF && f != CU_AD_FORMAT_FLOAT &&
           f <= CU_AD_FORMAT_SIGNED_INT32;
}

static CUresult resource_format(const CUDA_RESOURCE_DESC *d, CUarray_format *f)
{
    CUDA_ARRAY3D_DESCRIPTOR a;
    CUarray level;
    CUresult r;
    switch (d->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        r = driver.cuArray3DGetDescriptor_v2(&a, d->res.array.hArray);
        *f = a.Format;
        return r;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        r = driver.cuMipmappedArrayGetLevel(&level, d->res.mipmap.hMipmappedArray, 0);
        if (r == CUDA_SUCCESS)
            r = driver.cuArray3DGetDescriptor_v2(&a, level);
        *f = a.Format;
        return r;
    case CU_RESOURCE_TYPE_LINEAR:
        *f = d->res.linear.format;
        return CUDA_SUCCESS;
    default:
        *f = d->res.pitch2D.format;
        return CUDA_SUCCESS;
    }
}

unsigned texture_flags(CUarray_format f, enum cudaTextureReadMode mode, int normalized, int srgb, int exact)
{
    return (reads_integers(f, mode) ? CU_TRSF_READ_AS_INTEGER : 0) |
           (normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0) | (srgb ? CU_TRSF_SRGB : 0) |
           (exact ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION : 0);
}

EXPORT cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const struct cudaResourceDesc *r,
    const struct cudaTextureDesc *t, const struct cudaResourceViewDesc *v)
{
    CUDA_RESOURCE_DESC res;
    CUDA_TEXTURE_DESC tex;
    CUDA_RESOURCE_VIEW_DESC view;
    CUarray_format format;
    if (!object || !r || !t)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(resource(r, &res));
    TRY(resource_format(&res, &format));
    tex = (CUDA_TEXTURE_DESC){
        .filterMode = (CUfilter_mode)t->filterMode,
        .flags = texture_flags(format, t->readMode, t->normalizedCoords, t->sRGB,
            t->disableTrilinearOptimization),
        .maxAnisotropy = t->maxAnisotropy,
        .mipmapFilterMode = (CUfilter_mode)t->mipmapFilterMode,
        .mipmapLevelBias = t->mipmapLevelBias,
        .minMipmapLevelClamp = t->minMipmapLevelClamp,
        .maxMipmapLevelClamp = t->maxMipmapLevelClamp,
    };
#if MAJOR >= 12
    if (t->seamlessCubemap)
        tex.flags |= CU_TRSF_SEAMLESS_CUBEMAP;
#endif
    for (int i = 0; i < 3; i++)
        tex.addressMode[i] = (CUaddress_mode)t->addressMode[i];
    memcpy(tex.borderColor, t->borderColor, sizeof tex.borderColor);
    if (v)
        view = (CUDA_RESOURCE_VIEW_DESC){
            .format = (CUresourceViewFormat)v->format,
            .width = v->width,
            .height = v->height,
            .depth = v->depth,
            .firstMipmapLevel = v->firstMipmapLevel,
            .lastMipmapLevel = v->lastMipmapLevel,
            .firstLayer = v->firstLayer,
            .lastLayer = v->lastLayer,
        };
    return done(driver.cuTexObjectCreate(object, &res, &tex, v ? &view : NULL));
}

EXPORT cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object)
{
    READY;
    return done(driver.cuTexObjectDestroy(object));
}

EXPORT cudaError_t cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *r, cudaTextureObject_t object)
{
    CUDA_RESOURCE_DESC d;
    READY;
    TRY(driver.cuTexObjectGetResourceDesc(&d, object));
    return done(resource_back(&d, r));
}

EXPORT cudaError_t cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *t, cudaTextureObject_t object)
{
    CUDA_TEXTURE_DESC d;
    CUDA_RESOURCE_DESC r;
    CUarray_format f;
    READY;
    TRY(driver.cuTexObjectGetTextureDesc(&d, object));
    TRY(driver.cuTexObjectGetResourceDesc(&r, object));
    TRY(resource_format(&r, &f));
    memset(t, 0, sizeof *t);
    for (int i = 0; i < 3; i++)
        t->addressMode[i] = (enum cudaTextureAddressMode)d.addressMode[i];
    t->filterMode = (enum cudaTextureFilterMode)d.filterMode;
    t->readMode = d.flags & CU_TRSF_READ_AS_INTEGER || !reads_integers(f, cudaReadModeElementType)
                      ? cudaReadModeElementType
                      : cudaReadModeNormalizedFloat;
    t->sRGB = !!(d.flags & CU_TRSF_SRGB);
    memcpy(t->borderColor, d.borderColor, sizeof t->borderColor);
    t->normalizedCoords = !!(d.flags & CU_TRSF_NORMALIZED_COORDINATES);
    t->maxAnisotropy = d.maxAnisotropy;
    t->mipmapFilterMode = (enum cudaTextureFilterMode)d.mipmapFilterMode;
    t->mipmapLevelBias = d.mipmapLevelBias;
    t->minMipmapLevelClamp = d.minMipmapLevelClamp;
    t->maxMipmapLevelClamp = d.maxMipmapLevelClamp;
    t->disableTrilinearOptimization = !!(d.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
#if MAJOR >= 12
    t->seamlessCubemap = !!(d.flags & CU_TRSF_SEAMLESS_CUBEMAP);
#endif
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetTextureObjectResourceViewDesc(struct cudaResourceViewDesc *v,
    cudaTextureObject_t object)
{
    CUDA_RESOURCE_VIEW_DESC d;
    READY;
    TRY(driver.cuTexObjectGetResourceViewDesc(&d, object));
    *v = (struct cudaResourceViewDesc){
        .format = (enum cudaResourceViewFormat)d.format,
        .width = d.width,
        .height = d.height,
        .depth = d.depth,
        .firstMipmapLevel = d.firstMipmapLevel,
        .lastMipmapLevel = d.lastMipmapLevel,
        .firstLayer = d.firstLayer,
        .lastLayer = d.lastLayer,
    };
    return cudaSuccess;
}

EXPORT cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *object, const struct cudaResourceDesc *r)
{
    CUDA_RESOURCE_DESC d;
    if (!object || !r)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(resource(r, &d));
    return done(driver.cuSurfObjectCreate(object, &d));
}

EXPORT cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object)
{
    READY;
    return done(driver.cuSurfObjectDestroy(object));
}

EXPORT cudaError_t cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *r, cudaSurfaceObject_t object)
{
    CUDA_RESOURCE_DESC d;
    READY;
    TRY(driver.cuSurfObjectGetResourceDesc(&d, object));
    return done(resource_back(&d, r));
}
