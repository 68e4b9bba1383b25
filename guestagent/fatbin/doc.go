// Package fatbin reads and writes fat binaries, the containers in which CUDA's compilers embed
// device code: PTX and machine code for several architectures, often compressed.
//
// A program registers a [Wrapper], which points to a container. [Parse] lists a container's
// entries without decompressing them; [Container.Choose] picks the one for a GPU and decompresses
// that one alone. [Append] writes containers, for programs that clang builds.
//
// A pointer that a program hands to cuModuleLoadData may be to any of these, to PTX text or to
// machine code, and comes without a length: [Detect] and [Size] tell from the first bytes.
//
// The bytes are the tenant's and may be hostile. Everything is bounded by [Options], and errors are
// of type [*Error], with the code by which CUDA reports them. The package parses no PTX and does no
// I/O; it never writes to what it is given.
//
// The layout was found by observing what compilers write; NVIDIA documents the wrapper alone
// (fatbinary_section.h).
package fatbin
