// Package packages tests the Debian packages that `make packages` builds: they are installed, used,
// upgraded from a lower version, removed and purged in a clean Debian trixie, and lintian has
// nothing to say about them but what they override. The RPMs are installed with their scripts and
// removed in the same system, by Debian's rpm; no distribution of RPM's own is tried.
//
// The tests need root: each works in a root directory of its own, with processes and mounts of its
// own. There is no systemd in it, so that units are checked but not started.
package packages
