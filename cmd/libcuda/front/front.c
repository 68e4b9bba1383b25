#define _GNU_SOURCE
#define VGPU_CUDA_SYMBOLS
#include "front.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { MOST_FUNCTIONS = 2048 };

static struct {
  pthread_mutex_t lock;
  int ready;  /* cuInit has succeeded */
  int forked; /* this process is a child of one that had loaded the Go part */
  void *library;
  vgpu_init_function *init;
  vgpu_call_function *call;
  vgpu_again_function *again;
  vgpu_callback_function *callback;
  vgpu_exit_function *exit;
  sigset_t blocked; /* while a thread is in the Go part */
} part = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t missed[MOST_FUNCTIONS];

/* A signal handler without SA_ONSTACK must not run on a goroutine's small stack. So no signal is
 * delivered to a thread in the Go part, but those of its own faults, which Go handles. */
static void fill_blocked(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  sigfillset(&part.blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&part.blocked, faults[i]);
}

/* The Go runtime of the parent does not run in a forked child: its threads are not there. */
static void in_child(void) {
  part.forked = 1;
  pthread_mutex_init(&part.lock, NULL);
}

int vgpu_ready(void) { return __atomic_load_n(&part.ready, __ATOMIC_ACQUIRE) && !part.forked; }

/* What kernels print appears at the synchronization, between what the program itself prints, also
 * where that goes to standard error. */
static void print(const char *text, size_t bytes, int error) {
  FILE *f = error ? stderr : stdout;
  fwrite(text, 1, bytes, f);
  fflush(f);
}

/* This thread makes callbacks. A callback must not call CUDA, which answers
 * CUDA_ERROR_NOT_PERMITTED: libgomp relies on that to find out that it is in one. */
static __thread int makes_callbacks;

/* Makes the callbacks of host functions and streams. Signals stay blocked: it is not a thread of
 * the program's. */
static void *callbacks(void *unused) {
  struct vgpu_callback c = {0};
  makes_callbacks = 1;
  while (part.callback(&c)) {
    if (c.kind == VGPU_HOST_FUNCTION)
      ((CUhostFn)c.function)(c.data);
    else
      ((CUstreamCallback)c.function)((CUstream)c.stream, c.status, c.data);
  }
  return unused;
}

static int start_callbacks(void) {
  pthread_t t;
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &part.blocked, &old);
  int failed = pthread_create(&t, NULL, callbacks, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!failed) pthread_detach(t);
  return failed;
}

/* Ends what the process has on the device. If a callback ends the process, the device does so itself
 * when the process is gone, since the Go part would wait for that callback. */
static void at_exit(void) {
  if (!vgpu_ready() || makes_callbacks) return;
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &part.blocked, &old);
  part.exit();
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int find(void *target, const char *name) {
  void *f = dlsym(part.library, name);
  memcpy(target, &f, sizeof f);
  return f != NULL;
}

/* Loads libvgpucuda.so from the folder that this library is in. */
static CUresult load(void) {
  static const char name[] = "libvgpucuda.so";
  Dl_info self;
  if (part.library) return CUDA_SUCCESS;
  if (!dladdr((void *)&part, &self) || !self.dli_fname) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
  const char *slash = strrchr(self.dli_fname, '/');
  size_t folder = slash ? (size_t)(slash + 1 - self.dli_fname) : 0;
  char *path = malloc(folder + sizeof name);
  if (!path) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(path, self.dli_fname, folder);
  memcpy(path + folder, name, sizeof name);
  part.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!part.library) fprintf(stderr, "libcuda: %s\n", dlerror());
  free(path);
  if (!part.library) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
  if (!find(&part.init, "vgpuInit") || !find(&part.call, "vgpuCall") || !find(&part.again, "vgpuAgain") ||
      !find(&part.callback, "vgpuNextCallback") || !find(&part.exit, "vgpuExit"))
    return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  pthread_atfork(NULL, NULL, in_child);
  atexit(at_exit);
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags) {
  static struct vgpu_hooks hooks = {.print = print, .start_callbacks = start_callbacks, .missed = missed};
  CUresult r = CUDA_SUCCESS;
  if (part.forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (vgpu_ready()) return CUDA_SUCCESS;
  pthread_mutex_lock(&part.lock);
  if (!part.ready) {
    sigset_t all, old;
    fill_blocked();
    /* Go's threads inherit the mask: none of them gets the program's signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = load();
    pthread_sigmask(SIG_SETMASK, &part.blocked, NULL);
    hooks.secure = getauxval(AT_SECURE) != 0;
    if (r == CUDA_SUCCESS) r = part.init(&hooks);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == CUDA_SUCCESS) __atomic_store_n(&part.ready, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&part.lock);
  return r;
}

CUresult vgpu_call(uint32_t function, uint64_t *words) {
  if (__builtin_expect(!vgpu_ready(), 0)) return CUDA_ERROR_NOT_INITIALIZED;
  if (__builtin_expect(makes_callbacks, 0)) return CUDA_ERROR_NOT_PERMITTED;
  struct vgpu_thread *t = vgpu_thread();
  if (__builtin_expect(!t, 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &part.blocked, &old);
  uint32_t r = part.call(function, t, words);
  while (r == VGPU_AGAIN) {
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_sigmask(SIG_BLOCK, &part.blocked, NULL);
    r = part.again(t);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return r;
}

uint32_t vgpu_unbuilt(uint32_t function) {
  __atomic_fetch_add(&missed[function % MOST_FUNCTIONS], 1, __ATOMIC_RELAXED);
  return CUDA_ERROR_NOT_SUPPORTED;
}
