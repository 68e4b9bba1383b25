#ifndef LOG_H
#define LOG_H

/* record notes a call; recorded tells whether name was called since it was last asked. */
void record(const char *name);
int recorded(const char *name);

#endif
