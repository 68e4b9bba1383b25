// Package binding connects to libvirt by its own client library, for the program vgpu-libvirt
// alone; everything else uses package libvirt.
//
// The library is loaded when the program starts (build tag libvirt_dlopen), so building needs a C
// compiler and none of libvirt's headers. Without cgo or the tag the package builds too, and [Open]
// returns an error that says what is missing.
package binding
