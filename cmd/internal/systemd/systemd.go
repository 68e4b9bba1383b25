// Package systemd tells a service manager how a daemon is, by the protocol of
// sd_notify(3).
package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Notify tells the service manager, if there is one, something such as "READY=1",
// "STOPPING=1" or "WATCHDOG=1".
func Notify(state string) (err error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // an abstract socket
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// Watchdog is how long the service manager waits for "WATCHDOG=1" before it takes the
// daemon for hung; 0 without a watchdog.
func Watchdog() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	micros, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 40)
	if err != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}
