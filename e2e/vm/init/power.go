package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/vfio/qemu/console"
)

// power powers off or reboots the guest; it returns only on an error. There is no file system to
// sync.
func power(action string) error {
	switch action {
	case console.PowerOff:
		return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case console.Reboot:
		return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case console.Panic:
		return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	}
	return fmt.Errorf("nothing of a guest's is called that")
}
