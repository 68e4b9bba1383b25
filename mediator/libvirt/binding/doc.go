// Package binding is libvirt by its own client library, for the program
// vgpu-libvirt alone; everybody else goes through package libvirt.
//
// The library is loaded when the program starts (build tag libvirt_dlopen), so
// building needs a C compiler and none of libvirt's headers. Without cgo or the
// tag the package builds too, and [Open] says what is missing.
package binding
