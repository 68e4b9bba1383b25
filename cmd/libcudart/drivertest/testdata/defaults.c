/* A driver that knows every function the runtime asks for, and does nothing in any. driver.c has
 * those that matter. */
#include "log.h"

#define DRIVER_FUNCTION(name)                                                                      \
  __attribute__((weak)) int name(void);                                                            \
  __attribute__((weak)) int name(void) {                                                           \
    record(#name);                                                                                 \
    return 0;                                                                                      \
  }
#include "driver_functions.h"
