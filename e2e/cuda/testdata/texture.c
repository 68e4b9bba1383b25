/* Arrays, textures and surfaces, by objects and by references. */
#include "check.h"

enum { W = 37, H = 23, D = 5 };

#define KERNELS \
  ".version 7.0\n.target sm_80\n.address_size 64\n" \
  ".global .texref picture;\n.global .surfref canvas;\n" \
  /* fetch(float *out, texture t, unsigned w): out[y*w+x] = t at (x, y), unfiltered */ \
  ".visible .entry fetch(.param .u64 out, .param .u64 t, .param .u32 w) {\n" \
  "  .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<5>;\n" \
  "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [t]; ld.param.u32 %r3, [w];\n" \
  "  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n" \
  "  tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd2, {%r1, %r2}];\n" \
  "  mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3; st.global.f32 [%rd4], %f1; ret;\n}\n" \
  /* between(float *out, texture t): out[x] = t at x, halfway to the next, filtered, one dimension */ \
  ".visible .entry between(.param .u64 out, .param .u64 t) {\n" \
  "  .reg .b32 %r<3>; .reg .f32 %f<7>; .reg .b64 %rd<5>;\n" \
  "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [t]; mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f5, %r1; add.f32 %f6, %f5, 0f3F800000;\n" \
  "  tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd2, {%f6}];\n" \
  "  mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; st.global.f32 [%rd4], %f1; ret;\n}\n" \
  /* named(unsigned *out): out[x] = picture at x, integers */ \
  ".visible .entry named(.param .u64 out) {\n" \
  "  .reg .b32 %r<7>; .reg .b64 %rd<4>;\n" \
  "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x;\n" \
  "  tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [picture, {%r1}];\n" \
  "  mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2; ret;\n}\n" \
  /* paint(surface s): s at (x, y) = 100y + x */ \
  ".visible .entry paint(.param .u64 s) {\n" \
  "  .reg .b32 %r<6>; .reg .b64 %rd<2>;\n" \
  "  ld.param.u64 %rd1, [s]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 100, %r1; shl.b32 %r4, %r1, 2;\n" \
  "  sust.b.2d.b32.trap [%rd1, {%r4, %r2}], {%r3}; ret;\n}\n" \
  /* brush(): canvas at (x, y) = 7 */ \
  ".visible .entry brush() {\n" \
  "  .reg .b32 %r<6>;\n" \
  "  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, 7; shl.b32 %r4, %r1, 2;\n" \
  "  sust.b.2d.b32.trap [canvas, {%r4, %r2}], {%r3}; ret;\n}\n"

static CUmodule m;
static CUdeviceptr out;

static CUfunction kernel(const char *name) {
  CUfunction f;
  OK(cuModuleGetFunction(&f, m, name));
  return f;
}

static void run(const char *name, unsigned blocks, unsigned threads, void **args) {
  OK(cuLaunchKernel(kernel(name), blocks, 1, 1, threads, 1, 1, 0, NULL, args, NULL));
  OK(cuCtxSynchronize());
}

/* Copies a picture to an array and back, in all the ways there are. */
static void copies(void) {
  static float picture[H][W], back[H][W];
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) picture[y][x] = 1000 * y + x;
  CUarray a, b;
  CUDA_ARRAY_DESCRIPTOR d = {.Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, e;
  OK(cuArrayCreate(&a, &d));
  OK(cuArrayCreate(&b, &d));
  OK(cuArrayGetDescriptor(&e, a));
  TRUE(memcmp(&d, &e, sizeof d) == 0);
  CUDA_ARRAY_MEMORY_REQUIREMENTS need;
  OK(cuArrayGetMemoryRequirements(&need, a, 0));
  TRUE(need.size >= sizeof picture && need.alignment > 0);
  CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = picture, .srcPitch = sizeof picture[0], .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = sizeof picture[0], .Height = H};
  OK(cuMemcpy2D(&in));
  /* The middle of it, to the other array and to memory. */
  CUDA_MEMCPY2D over = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .srcXInBytes = 4, .srcY = 2, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = b, .dstXInBytes = 8, .dstY = 1, .WidthInBytes = 40, .Height = 10};
  OK(cuMemcpy2D(&over));
  CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = b, .srcXInBytes = 8, .srcY = 1, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = sizeof back[0], .WidthInBytes = 40, .Height = 10};
  OK(cuMemcpy2D(&from));
  TRUE(back[0][0] == 2001 && back[9][9] == 11010 && back[0][10] == 0);
  from.dstMemoryType = CU_MEMORYTYPE_DEVICE, from.dstDevice = out, from.dstPitch = 64;
  OK(cuMemcpy2DAsync(&from, NULL));
  OK(cuMemcpyDtoH(back, out, 64));
  TRUE(back[0][9] == 2010);
  CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = out, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = 40, .Height = 10};
  OK(cuMemcpy2D(&to));
  /* As one line. */
  OK(cuMemcpyAtoH(back, a, 0, 40));
  TRUE(back[0][0] == 2001 && back[0][9] == 2010);
  CUstream s;
  OK(cuStreamCreate(&s, 0));
  OK(cuMemcpyHtoAAsync(a, sizeof picture[0], picture, 2 * sizeof picture[0], s));
  OK(cuMemcpyAtoHAsync(back, a, 2 * sizeof picture[0], sizeof picture[0], s));
  OK(cuStreamSynchronize(s));
  TRUE(back[0][5] == 1005);
  OK(cuMemcpyHtoA(a, 0, picture, 8));
  OK(cuMemcpyAtoD(out, a, 0, 8));
  OK(cuMemcpyDtoA(b, 4, out, 8));
  OK(cuMemcpyAtoA(b, 12, a, 4, 4));
  OK(cuMemcpyAtoH(back, b, 4, 12));
  TRUE(back[0][0] == 0 && back[0][1] == 1 && back[0][2] == 1);
  /* Bad input. */
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH(back, a, 4, sizeof picture[0]));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAtoH(back, (CUarray)picture, 0, 4));
  over.srcY = H;
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&over));
  d.NumChannels = 3;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate(&b, &d));
  d.NumChannels = 1, d.Width = 0;
  WANT(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(&b, &d));
  WANT(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(NULL, &d));
  OK(cuArrayDestroy(a));
  OK(cuArrayDestroy(b));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(b));
}

/* Three dimensions. */
static void volume(void) {
  static unsigned char cube[D][H][W], back[D][H][W];
  for (unsigned i = 0; i < sizeof cube; i++) ((unsigned char *)cube)[i] = 7 * i;
  CUarray a;
  CUDA_ARRAY3D_DESCRIPTOR d = {.Width = W, .Height = H, .Depth = D, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1}, e;
  OK(cuArray3DCreate(&a, &d));
  OK(cuArray3DGetDescriptor(&e, a));
  TRUE(memcmp(&d, &e, sizeof d) == 0);
  CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = cube, .srcPitch = W, .srcHeight = H, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = W, .Height = H, .Depth = D};
  OK(cuMemcpy3D(&in));
  CUDA_MEMCPY3D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = W, .dstHeight = H, .WidthInBytes = W, .Height = H, .Depth = D};
  OK(cuMemcpy3D(&from));
  TRUE(memcmp(cube, back, sizeof cube) == 0);
  OK(cuArrayDestroy(a));
}

static void texture_objects(void) {
  static float picture[H][W], got[H * W];
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) picture[y][x] = 0.5f * y + x;
  CUarray a;
  CUDA_ARRAY_DESCRIPTOR d = {.Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  OK(cuArrayCreate(&a, &d));
  CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = picture, .srcPitch = sizeof picture[0], .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = sizeof picture[0], .Height = H};
  OK(cuMemcpy2D(&in));
  CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY}, rq;
  r.res.array.hArray = a;
  CUDA_TEXTURE_DESC t = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}, .filterMode = CU_TR_FILTER_MODE_POINT}, tq;
  CUDA_RESOURCE_VIEW_DESC vq;
  CUtexObject o;
  OK(cuTexObjectCreate(&o, &r, &t, NULL));
  OK(cuTexObjectGetResourceDesc(&rq, o));
  OK(cuTexObjectGetTextureDesc(&tq, o));
  OK(cuTexObjectGetResourceViewDesc(&vq, o));
  TRUE(rq.res.array.hArray == a && tq.addressMode[1] == CU_TR_ADDRESS_MODE_CLAMP && vq.format == 0);
  unsigned w = W;
  void *args[] = {&out, &o, &w};
  run("fetch", H, W, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  TRUE(memcmp(got, picture, sizeof got) == 0);
  OK(cuTexObjectDestroy(o));
  WANT(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(o));

  /* Of linear memory with a pitch. */
  CUdeviceptr p;
  size_t pitch;
  OK(cuMemAllocPitch(&p, &pitch, sizeof picture[0], H, 4));
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = p, in.dstPitch = pitch;
  OK(cuMemcpy2D(&in));
  r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D};
  r.res.pitch2D.devPtr = p, r.res.pitch2D.format = CU_AD_FORMAT_FLOAT, r.res.pitch2D.numChannels = 1;
  r.res.pitch2D.width = W, r.res.pitch2D.height = H, r.res.pitch2D.pitchInBytes = pitch;
  OK(cuTexObjectCreate(&o, &r, &t, NULL));
  OK(cuMemsetD32(out, 0, H * W));
  run("fetch", H, W, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  TRUE(memcmp(got, picture, sizeof got) == 0);
  OK(cuTexObjectDestroy(o));
  r.res.pitch2D.pitchInBytes = 1;
  WANT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&o, &r, &t, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&o, NULL, &t, NULL));
  r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&o, &r, &t, NULL));

  /* Filtered: halfway between texels. */
  CUarray line;
  d = (CUDA_ARRAY_DESCRIPTOR){.Width = W, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  OK(cuArrayCreate(&line, &d));
  OK(cuMemcpyHtoA(line, 0, picture, sizeof picture[0]));
  r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY};
  r.res.array.hArray = line;
  t.filterMode = CU_TR_FILTER_MODE_LINEAR;
  OK(cuTexObjectCreate(&o, &r, &t, NULL));
  run("between", 1, W - 1, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  for (int x = 0; x < W - 1; x++) TRUE(got[x] == x + 0.5f);
  OK(cuTexObjectDestroy(o));
  OK(cuArrayDestroy(line));
  OK(cuArrayDestroy(a));
}

static void surfaces(void) {
  CUarray a, plain;
  CUDA_ARRAY3D_DESCRIPTOR d = {.Width = W, .Height = H, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
  OK(cuArray3DCreate(&a, &d));
  d.Flags = 0;
  OK(cuArray3DCreate(&plain, &d));
  CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY}, rq;
  CUsurfObject o;
  r.res.array.hArray = plain;
  WANT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&o, &r));
  r.res.array.hArray = a;
  OK(cuSurfObjectCreate(&o, &r));
  OK(cuSurfObjectGetResourceDesc(&rq, o));
  TRUE(rq.res.array.hArray == a);
  void *args[] = {&o};
  run("paint", H, W, args);
  static unsigned got[H][W];
  CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = got, .dstPitch = sizeof got[0], .WidthInBytes = sizeof got[0], .Height = H};
  OK(cuMemcpy2D(&from));
  for (unsigned y = 0; y < H; y++)
    for (unsigned x = 0; x < W; x++) TRUE(got[y][x] == 100 * y + x);
  CUsurfref ref;
  CUarray named;
  OK(cuModuleGetSurfRef(&ref, m, "canvas"));
  WANT(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&ref, m, "picture"));
  OK(cuModuleGetSurfRef(&ref, m, "canvas"));
  OK(cuSurfRefSetArray(ref, a, 0));
  OK(cuSurfRefGetArray(&named, ref));
  TRUE(named == a);
  run("brush", H, W, NULL);
  OK(cuMemcpy2D(&from));
  TRUE(got[0][0] == 7 && got[H - 1][W - 1] == 7);
  OK(cuSurfObjectDestroy(o));
  OK(cuArrayDestroy(a));
  OK(cuArrayDestroy(plain));
}

static void references(void) {
  unsigned values[64], got[64];
  for (int i = 0; i < 64; i++) values[i] = 3 * i + 1;
  CUdeviceptr p;
  OK(cuMemAlloc(&p, sizeof values));
  OK(cuMemcpyHtoD(p, values, sizeof values));
  CUtexref ref, same;
  WANT(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&ref, m, "nothing"));
  OK(cuModuleGetTexRef(&ref, m, "picture"));
  OK(cuModuleGetTexRef(&same, m, "picture"));
  TRUE(ref == same);
  OK(cuTexRefSetFormat(ref, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  OK(cuTexRefSetFlags(ref, CU_TRSF_READ_AS_INTEGER));
  OK(cuTexRefSetFilterMode(ref, CU_TR_FILTER_MODE_POINT));
  OK(cuTexRefSetAddressMode(ref, 0, CU_TR_ADDRESS_MODE_CLAMP));
  size_t offset = 9;
  OK(cuTexRefSetAddress(&offset, ref, p, sizeof values));
  TRUE(offset == 0);
  CUdeviceptr q;
  OK(cuTexRefGetAddress(&q, ref));
  TRUE(q == p);
  CUarray_format format;
  int channels;
  OK(cuTexRefGetFormat(&format, &channels, ref));
  TRUE(format == CU_AD_FORMAT_UNSIGNED_INT32 && channels == 1);
  unsigned flags;
  OK(cuTexRefGetFlags(&flags, ref));
  TRUE(flags == CU_TRSF_READ_AS_INTEGER);
  CUfilter_mode filter;
  OK(cuTexRefGetFilterMode(&filter, ref));
  TRUE(filter == CU_TR_FILTER_MODE_POINT);
  CUaddress_mode mode;
  OK(cuTexRefGetAddressMode(&mode, ref, 0));
  TRUE(mode == CU_TR_ADDRESS_MODE_CLAMP);
  float color[4] = {1, 2, 3, 4}, colors[4];
  OK(cuTexRefSetBorderColor(ref, color));
  OK(cuTexRefGetBorderColor(colors, ref));
  TRUE(memcmp(color, colors, sizeof color) == 0);
  int aniso;
  OK(cuTexRefSetMaxAnisotropy(ref, 4));
  OK(cuTexRefGetMaxAnisotropy(&aniso, ref));
  TRUE(aniso == 4);
  void *args[] = {&out};
  run("named", 1, 64, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  TRUE(memcmp(got, values, sizeof got) == 0);
  /* Another memory, then an array. */
  CUdeviceptr other;
  OK(cuMemAlloc(&other, sizeof values));
  OK(cuMemsetD32(other, 5, 64));
  OK(cuTexRefSetAddress(NULL, ref, other, sizeof values));
  run("named", 1, 64, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  TRUE(got[0] == 5 && got[63] == 5);
  CUarray a, named;
  CUDA_ARRAY_DESCRIPTOR d = {.Width = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
  OK(cuArrayCreate(&a, &d));
  OK(cuMemcpyHtoA(a, 0, values, sizeof values));
  OK(cuTexRefSetArray(ref, a, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetArray(&named, ref));
  TRUE(named == a);
  run("named", 1, 64, args);
  OK(cuMemcpyDtoH(got, out, sizeof got));
  TRUE(memcmp(got, values, sizeof got) == 0);
  d.Height = 1;
  OK(cuTexRefSetAddress2D(ref, &d, p, 256));
  WANT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetFilterMode(ref, 9));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags((CUtexref)p, 0));
  OK(cuTexRefCreate(&same));
  OK(cuTexRefSetFlags(same, CU_TRSF_NORMALIZED_COORDINATES));
  /* A kernel has its module's references by their names, and no others. */
  OK(cuParamSetTexRef(kernel("named"), CU_PARAM_TR_DEFAULT, ref));
  WANT(CUDA_ERROR_INVALID_VALUE, cuParamSetTexRef(kernel("named"), 0, ref));
  WANT(CUDA_ERROR_INVALID_VALUE, cuParamSetTexRef(kernel("named"), CU_PARAM_TR_DEFAULT, same));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuParamSetTexRef((CUfunction)ref, CU_PARAM_TR_DEFAULT, ref));
  OK(cuTexRefDestroy(same));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(ref));
}

int main(void) {
  begin();
  OK(cuModuleLoadData(&m, KERNELS));
  OK(cuMemAlloc(&out, W * H * sizeof(float)));
  copies();
  volume();
  texture_objects();
  surfaces();
  references();
  puts("right");
}
