// Package mathtest tests the mathematical functions that cmd/libcudart's headers give device code. They
// are C++, so a C++ compiler is needed; they run on the host, against the C library's.
package mathtest
