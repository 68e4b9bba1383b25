// Package systemd tells a service manager how a daemon is, by the protocol of
// sd_notify(3).
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Notify tells the service manager, if there is one, of states such as "READY=1",
// "STOPPING=1" or "WATCHDOG=1", in one message.
func Notify(states ...string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // an abstract socket
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	_, err = conn.Write([]byte(strings.Join(states, "\n")))
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// Tell is [Notify] where nothing depends on it.
func Tell(log *slog.Logger, states ...string) {
	if err := Notify(states...); err != nil {
		log.Warn("not told", "states", states, "err", err)
	}
}

// Reloading are the states that say that the configuration is being read again,
// which ends with a "READY=1". The time is what tells this from an earlier one.
func Reloading() []string {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000)}
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

// Feed tells the service manager every now and then that this process is alive,
// for as long as it is, until ctx ends. With a time of 0 it does nothing. Half of
// [Watchdog] is what sd_watchdog_enabled(3) advises.
func Feed(ctx context.Context, every time.Duration, log *slog.Logger, alive func() bool) {
	if every == 0 {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if alive() {
			Tell(log, "WATCHDOG=1")
		} else {
			log.Error("the daemon is stuck; the service manager will end it, guests go on")
		}
	}
}
