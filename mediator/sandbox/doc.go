// Package sandbox confines a guest's processes, `vgpud vm` and its executors, so that a
// vulnerability in the code that reads a guest's rings affects that guest alone.
//
// The daemon does most of this before a process starts, so the process never has a privilege to
// drop. A [Manager] gives each guest a sandbox ([ipc.Sandbox]): a user that no other process of the
// host has; a mount namespace that is read-only and whose /dev holds the guest's GPU alone; a network
// namespace without a network; a control group with limits. [Start] starts a process in it. The guest's executors are children of
// its process and so share its sandbox. The process itself calls [Limit] when it starts, and an
// executor calls [Seal] after it has created its GPU context: from then on it can make only the
// system calls that its work needs.
//
// The manager leaves out what the host can't do, such as all of the above when the daemon is not
// root, and reports it: see [Manager.Missing].
package sandbox
