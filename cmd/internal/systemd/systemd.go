// Package systemd reports a daemon's state to the service manager, by the protocol of sd_notify(3).
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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Notify sends the service manager, if there is one, states such as "READY=1", "STOPPING=1" or
// "WATCHDOG=1" in one message.
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
		return fmt.Errorf("notify the service manager: %w", err)
	}
	_, err = conn.Write([]byte(strings.Join(states, "\n")))
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// TryNotify is [Notify] with errors logged.
func TryNotify(log *slog.Logger, states ...string) {
	if err := Notify(states...); err != nil {
		log.Warn("service manager not notified", "states", states, "err", err)
	}
}

// Reloading returns the states that announce a reload of the configuration, which a later "READY=1"
// ends. The time distinguishes it from an earlier reload.
func Reloading() []string {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000)}
}

// Watchdog returns how long the service manager waits for "WATCHDOG=1" before it takes the daemon
// for hung, or 0 without a watchdog.
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

// Advances returns what [FeedWatchdog] asks of a daemon that works in rounds: it reports whether a round
// has ended since it was last called, or none has ended yet.
func Advances(rounds *atomic.Uint64) func() bool {
	var fed uint64
	return func() bool {
		now := rounds.Load()
		alive := now != fed || now == 0
		fed = now
		return alive
	}
}

// FeedWatchdog sends "WATCHDOG=1" every so often while alive reports true, until ctx ends. It does
// nothing if every is 0. sd_watchdog_enabled(3) recommends half of [Watchdog].
func FeedWatchdog(ctx context.Context, every time.Duration, log *slog.Logger, alive func() bool) {
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
			TryNotify(log, "WATCHDOG=1")
		} else {
			log.Error("the daemon is stuck; the service manager will end it, and guests go on")
		}
	}
}
