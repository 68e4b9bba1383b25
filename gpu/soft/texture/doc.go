// Package texture samples textures and addresses surfaces as CUDA's C++ Programming Guide defines
// them ("Texture Fetching"): a pure function of a descriptor, the bytes of its memory, and
// coordinates. It knows nothing of kernels and contexts; package simt calls it lane by lane.
//
// Coordinates are exact: a normalized coordinate times the extent is not rounded. A linear filter's
// weights have eight fractional bits, as on NVIDIA's GPUs, and its sum is rounded once.
package texture
