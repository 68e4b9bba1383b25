/* The names of the API's functions and errors. */
#ifndef VGPU_NAMES_H
#define VGPU_NAMES_H

#include <stdint.h>

struct vgpu_name {
  const char *base; /* without a version */
  int since;        /* CUDA version */
  void (*function)(void);
  void (*per_thread)(void); /* the form for the per-thread default stream */
};

struct vgpu_error {
  uint32_t number;
  const char *name, *text;
};

/* Ordered by name, the newest version of each first. */
extern const struct vgpu_name vgpu_names[];
extern const unsigned vgpu_name_count;
extern const char *const vgpu_function_names[];
/* Ordered by number. */
extern const struct vgpu_error vgpu_errors[];
extern const unsigned vgpu_error_count;

#endif
