/* What the C part and the Go part agree on. */
#ifndef VGPU_PART_H
#define VGPU_PART_H

#include <stddef.h>
#include <stdint.h>

/* A thread's stack of current contexts. Package guestagent/cuda has the same layout. */
struct vgpu_thread {
  uint32_t id;       /* from 1; a number is used again after its thread's end */
  uint32_t depth;    /* contexts on the stack */
  uint32_t capacity; /* at least depth + 1 during a call */
  uint32_t zero;
  uint64_t *stack;
};

/* What the Go part calls. */
struct vgpu_hooks {
  /* Writes a kernel's output to stdout, or what an assertion says to stderr. */
  void (*print)(const char *text, size_t bytes, int error);
  /* Starts the thread that calls vgpuNextCallback. */
  int (*start_callbacks)(void);
  uint32_t *missed; /* calls of functions that are not built, by number */
  int secure;       /* the process has more rights than its user */
};

/* A callback for the callback thread to make. */
struct vgpu_callback {
  uint64_t id;
  void *function;
  void *data;
  uint64_t stream; /* of a stream callback, else 0 */
  uint32_t status; /* likewise */
  uint32_t kind;   /* one of the following */
};
#define VGPU_HOST_FUNCTION 1
#define VGPU_STREAM_CALLBACK 2

/* The answer of vgpuCall and vgpuAgain for a call that goes on with vgpuAgain, after the thread has
 * had its signals. */
#define VGPU_AGAIN 0xffffffffu

/* The functions of the Go part. */
typedef uint32_t vgpu_init_function(struct vgpu_hooks *hooks);
typedef uint32_t vgpu_call_function(uint32_t function, struct vgpu_thread *t, uint64_t *words);
typedef uint32_t vgpu_again_function(struct vgpu_thread *t);
typedef uint32_t vgpu_callback_function(struct vgpu_callback *c);
typedef void vgpu_exit_function(void);

#endif
