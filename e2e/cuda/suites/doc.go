// Suites runs test suites that others wrote, built by compilers that aren't NVIDIA's, over this
// project's libcuda.so.1 on the software GPU, and reports which tests pass.
//
//   - libgomp: GCC's tests of OpenMP and OpenACC, offloaded to nvptx (C, C++, Fortran).
//   - halide: Halide's tests, tutorials and apps for the target host-cuda (x86-64 with AVX2, CUDA capability 6.1).
//
// scripts/suite-deps.sh provides the compilers, libraries and sources. Each test is built once and
// the program is stored by the digest of all that it was built from. Each test runs as a process
// with a guest of its worker's, and the guest's counters show what it used: a test that left the
// GPU alone has not passed. A test that can't run is listed with its reason in excluded.txt.
//
// Results are added to a file as they come, so a later run continues there.
package main
