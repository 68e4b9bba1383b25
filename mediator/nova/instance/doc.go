// Package instance is what libvirt's hook needs for the instances that Nova starts on this host:
// what Placement has granted an instance ([Lookup]), which virtual GPUs that means ([Terms]), and the
// file of arguments that the emulator in QEMU's place reads ([Arguments]).
//
// A call of the hook is a process of its own, so nothing here is kept in memory. A file ([Known])
// keeps Placement's last answer about each instance, for the time when Placement can't be asked.
package instance
