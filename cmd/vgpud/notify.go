package main

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

// notify tells the service manager, if there is one, of states such as READY=1,
// in one message (sd_notify(3)).
func notify(states ...string) error {
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

// tellManager is notify where nothing depends on it.
func tellManager(log *slog.Logger, states ...string) {
	if err := notify(states...); err != nil {
		log.Warn("not told", "states", states, "err", err)
	}
}

// notifyReady says that the process serves.
func notifyReady() error { return notify("READY=1") }

// reloading says that the configuration is being read again, which ends with a
// READY=1. The time is what tells this from an earlier one.
func reloading() []string {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000)}
}

// watchdogEvery is how often the service manager wants to hear of this process;
// 0: not at all.
func watchdogEvery() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || micros <= 0 {
		return 0
	}
	return time.Duration(micros) * time.Microsecond / 2 // as sd_watchdog_enabled(3) advises
}

// feedWatchdog tells the service manager every now and then that this process is
// alive, for as long as it is, until ctx ends.
func feedWatchdog(ctx context.Context, every time.Duration, log *slog.Logger, alive func() bool) {
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
			tellManager(log, "WATCHDOG=1")
		} else {
			log.Error("the daemon is stuck; the service manager will end it, guests go on")
		}
	}
}
