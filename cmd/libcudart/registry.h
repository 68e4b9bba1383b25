#ifndef VGPU_REGISTRY_H
#define VGPU_REGISTRY_H

#include "runtime.h"

/* An image is a fat binary that a program registered. */
struct image;

enum kind {
    KERNEL,
    VARIABLE,
    TEXTURE,
    TEXTURE_OF_FLOATS, /* a texture whose integers are fetched as floats from 0 or -1 to 1 */
    SURFACE,
    HANDLE, /* a function that the program got from the driver */
};

struct image *register_image(const void *data);
void unregister_image(struct image *m);

/* register_entry gives host's entry, which is named name in the image. */
void register_entry(struct image *m, enum kind kind, const void *host, const char *name);

/* register_managed notes that the image has managed variables. */
void register_managed(struct image *m);

/* register_handle lets a function be launched like a kernel's stub. */
void register_handle(void *f);

#endif
