#ifndef VGPU_NV_TOOLS_EXT_H
#define VGPU_NV_TOOLS_EXT_H

/* NVTX: marks and ranges that a program shows to a profiler (NVIDIA Tools Extension, API reference).
 * A guest has no profiler, so the functions do nothing and answer as they do without one. */

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#define NVTX_VERSION 3
#define NVTX_SUCCESS 0
#define NVTX_FAIL 1
#define NVTX_NO_PUSH_POP_TRACKING ((int)-2)

typedef enum nvtxColorType_t { NVTX_COLOR_UNKNOWN, NVTX_COLOR_ARGB } nvtxColorType_t;
typedef enum nvtxMessageType_t {
    NVTX_MESSAGE_UNKNOWN,
    NVTX_MESSAGE_TYPE_ASCII,
    NVTX_MESSAGE_TYPE_UNICODE,
    NVTX_MESSAGE_TYPE_REGISTERED,
} nvtxMessageType_t;
typedef enum nvtxPayloadType_t {
    NVTX_PAYLOAD_UNKNOWN,
    NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
    NVTX_PAYLOAD_TYPE_INT64,
    NVTX_PAYLOAD_TYPE_DOUBLE,
    NVTX_PAYLOAD_TYPE_UNSIGNED_INT32,
    NVTX_PAYLOAD_TYPE_INT32,
    NVTX_PAYLOAD_TYPE_FLOAT,
} nvtxPayloadType_t;

typedef uint64_t nvtxRangeId_t;
typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st *nvtxStringHandle_t;
typedef union nvtxMessageValue_t {
    const char *ascii;
    const wchar_t *unicode;
    nvtxStringHandle_t registered;
} nvtxMessageValue_t;
typedef struct nvtxEventAttributes_v2 {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union payload_t {
        uint64_t ullValue;
        int64_t llValue;
        double dValue;
        uint32_t uiValue;
        int32_t iValue;
        float fValue;
    } payload;
    int32_t messageType;
    nvtxMessageValue_t message;
} nvtxEventAttributes_v2;
typedef nvtxEventAttributes_v2 nvtxEventAttributes_t;
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

#define VGPU_NVTX(T, name, parameters, value)                                                      \
    static inline __attribute__((unused)) T name parameters { return value; }

#ifdef __cplusplus
extern "C" {
#endif

VGPU_NVTX(void, nvtxInitialize, (const void *reserved), (void)0)
VGPU_NVTX(void, nvtxMarkEx, (const nvtxEventAttributes_t *a), (void)0)
VGPU_NVTX(void, nvtxMarkA, (const char *message), (void)0)
VGPU_NVTX(void, nvtxMarkW, (const wchar_t *message), (void)0)
VGPU_NVTX(nvtxRangeId_t, nvtxRangeStartEx, (const nvtxEventAttributes_t *a), 0)
VGPU_NVTX(nvtxRangeId_t, nvtxRangeStartA, (const char *message), 0)
VGPU_NVTX(nvtxRangeId_t, nvtxRangeStartW, (const wchar_t *message), 0)
VGPU_NVTX(void, nvtxRangeEnd, (nvtxRangeId_t id), (void)0)
VGPU_NVTX(int, nvtxRangePushEx, (const nvtxEventAttributes_t *a), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(int, nvtxRangePushA, (const char *message), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(int, nvtxRangePushW, (const wchar_t *message), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(int, nvtxRangePop, (void), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(void, nvtxNameCategoryA, (uint32_t category, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCategoryW, (uint32_t category, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameOsThreadA, (uint32_t thread, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameOsThreadW, (uint32_t thread, const wchar_t *name), (void)0)
VGPU_NVTX(nvtxDomainHandle_t, nvtxDomainCreateA, (const char *name), NULL)
VGPU_NVTX(nvtxDomainHandle_t, nvtxDomainCreateW, (const wchar_t *name), NULL)
VGPU_NVTX(void, nvtxDomainDestroy, (nvtxDomainHandle_t d), (void)0)
VGPU_NVTX(nvtxStringHandle_t, nvtxDomainRegisterStringA, (nvtxDomainHandle_t d, const char *s), NULL)
VGPU_NVTX(nvtxStringHandle_t, nvtxDomainRegisterStringW, (nvtxDomainHandle_t d, const wchar_t *s), NULL)
VGPU_NVTX(void, nvtxDomainMarkEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t *a), (void)0)
VGPU_NVTX(nvtxRangeId_t, nvtxDomainRangeStartEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t *a), 0)
VGPU_NVTX(void, nvtxDomainRangeEnd, (nvtxDomainHandle_t d, nvtxRangeId_t id), (void)0)
VGPU_NVTX(int, nvtxDomainRangePushEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t *a), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(int, nvtxDomainRangePop, (nvtxDomainHandle_t d), NVTX_NO_PUSH_POP_TRACKING)
VGPU_NVTX(void, nvtxDomainNameCategoryA, (nvtxDomainHandle_t d, uint32_t category, const char *name), (void)0)
VGPU_NVTX(void, nvtxDomainNameCategoryW, (nvtxDomainHandle_t d, uint32_t category, const wchar_t *name), (void)0)

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define nvtxMark nvtxMarkW
#define nvtxRangeStart nvtxRangeStartW
#define nvtxRangePush nvtxRangePushW
#define nvtxNameCategory nvtxNameCategoryW
#define nvtxNameOsThread nvtxNameOsThreadW
#define nvtxDomainCreate nvtxDomainCreateW
#define nvtxDomainRegisterString nvtxDomainRegisterStringW
#define nvtxDomainNameCategory nvtxDomainNameCategoryW
#else
#define nvtxMark nvtxMarkA
#define nvtxRangeStart nvtxRangeStartA
#define nvtxRangePush nvtxRangePushA
#define nvtxNameCategory nvtxNameCategoryA
#define nvtxNameOsThread nvtxNameOsThreadA
#define nvtxDomainCreate nvtxDomainCreateA
#define nvtxDomainRegisterString nvtxDomainRegisterStringA
#define nvtxDomainNameCategory nvtxDomainNameCategoryA
#endif

#endif
