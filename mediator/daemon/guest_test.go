package daemon

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/ipc"
)

// TestMalformedMessages: some are skipped, and messages after them are handled. A process that
// sends more is killed, since it could not be governed.
func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		messages int
		killed   bool
	}{"some": {maxMalformed, false}, "more": {maxMalformed + 3, true}} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := ipc.FromFile(os.NewFile(uintptr(fds[0]), "link"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cmd := exec.Command("sleep", "600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			ended := make(chan error, 1)
			go func() {
				ended <- cmd.Wait()
				// Its sockets close when it ends.
				if err := unix.Close(fds[1]); err != nil {
					t.Error(err)
				}
			}()
			for range c.messages {
				if _, err := unix.Write(fds[1], []byte("{")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := unix.Write(fds[1], []byte(`{"kind":"handles"}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fds[1], []byte(`{"kind":"changed"}`)); err != nil {
				t.Fatal(err)
			}
			received := make(chan ipc.Kind, 2)
			g := &guest{conn: conn, process: cmd.Process}
			left := make(chan bool, 1)
			go func() { left <- g.receive(slog.New(slog.DiscardHandler), func(m *ipc.Message) { received <- m.Kind }) }()
			if first, second := <-received, <-received; first != ipc.KindHandles || second != ipc.KindChanged {
				t.Errorf("received %s and %s", first, second)
			}
			if !c.killed {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("it ended with %v", err)
			}
			if !<-left {
				t.Error("it is not known to have ended")
			}
		})
	}
}
