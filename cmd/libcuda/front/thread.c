#define VGPU_CUDA_SYMBOLS
#include "front.h"

#include <pthread.h>
#include <stdlib.h>

/* Numbers of threads that have ended, to be used again. */
static struct {
  pthread_mutex_t lock;
  uint32_t last, free_count, free_room;
  uint32_t *free;
} numbers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread struct vgpu_thread *self;
static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;

static void end(void *thread) {
  struct vgpu_thread *t = thread;
  pthread_mutex_lock(&numbers.lock);
  if (numbers.free_count == numbers.free_room) {
    uint32_t room = 2 * numbers.free_room + 16;
    uint32_t *more = realloc(numbers.free, room * sizeof *more);
    if (more) {
      numbers.free = more;
      numbers.free_room = room;
    }
  }
  if (numbers.free_count < numbers.free_room) numbers.free[numbers.free_count++] = t->id;
  pthread_mutex_unlock(&numbers.lock);
  self = NULL;
  free(t->stack);
  free(t);
}

static void make_key(void) { pthread_key_create(&end_key, end); }

static struct vgpu_thread *begin(void) {
  struct vgpu_thread *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  pthread_once(&end_once, make_key);
  pthread_mutex_lock(&numbers.lock);
  t->id = numbers.free_count ? numbers.free[--numbers.free_count] : ++numbers.last;
  pthread_mutex_unlock(&numbers.lock);
  pthread_setspecific(end_key, t);
  return t;
}

struct vgpu_thread *vgpu_thread(void) {
  struct vgpu_thread *t = self;
  if (__builtin_expect(!t, 0)) {
    t = self = begin();
    if (!t) return NULL;
  }
  if (__builtin_expect(t->depth + 1 >= t->capacity, 0)) {
    uint32_t capacity = 2 * t->capacity + 8;
    uint64_t *stack = realloc(t->stack, capacity * sizeof *stack);
    if (!stack) return NULL;
    t->stack = stack;
    t->capacity = capacity;
  }
  return t;
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
  if (!vgpu_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_thread *t = vgpu_thread();
  if (!t) return CUDA_ERROR_OUT_OF_MEMORY;
  *pctx = t->depth ? (CUcontext)t->stack[t->depth - 1] : NULL;
  return CUDA_SUCCESS;
}
