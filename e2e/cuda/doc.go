// Package cuda runs programs that use CUDA's driver API, in C, over this project's libcuda.so.1 and
// a soft GPU. Each is a file in testdata, compiled with this project's cuda.h; it checks its own
// results and ends with a status of 0 if they are right.
package cuda
