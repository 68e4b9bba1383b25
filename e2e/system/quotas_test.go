package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// TestCap runs a guest with a cap alone on the GPU: it always has work, and never gets more than
// its cap.
func TestCap(t *testing.T) {
	h := host.Start(t, "none")
	const limit = 0.2
	busy(t, h, api.VMSpec{Name: "capped", Cap: limit}, 150)
	begin, before := time.Now(), h.VM("capped")
	var now api.VM
	// The GPU's clock may lag behind the host's, and what it executes runs on when the guest is
	// suspended: on any machine the excess is small once the guest has paid back what it used while
	// the daemon had no processor.
	h.Until("some GPU time, and no more than by the cap", func() error {
		now = h.VM("capped")
		used := *now.GPUSecondsOwn - *before.GPUSecondsOwn
		if got := used / time.Since(begin).Seconds(); used < 0.75 || got > 1.25*limit {
			return fmt.Errorf("%.3f s, %.3f of the GPU's time with a cap of %v", used, got, limit)
		}
		return nil
	})
	if now.Suspensions == before.Suspensions || now.Cap != limit {
		t.Errorf("%d suspensions, cap %v", now.Suspensions-before.Suspensions, now.Cap)
	}
	entitled(h, "capped", limit)
	none := 0.0
	if _, err := h.Client.UpdateVM(t.Context(), "capped", api.VMUpdate{Cap: &none}); err != nil {
		t.Fatal(err)
	}
	held := h.VM("capped").Suspensions
	before = h.VM("capped")
	h.Until("GPU time without the cap", func() error {
		if used := *h.VM("capped").GPUSecondsOwn - *before.GPUSecondsOwn; used < 0.2 {
			return fmt.Errorf("%.3f s", used)
		}
		return nil
	})
	if n := h.VM("capped").Suspensions; n != held {
		t.Errorf("%d suspensions more without a cap", n-held)
	}
}

// entitled waits until a guest is entitled to a share. A guest that the host gives no processor has
// no work for a moment, and is then entitled to nothing.
func entitled(h *host.Host, name string, share float64) {
	h.Until(fmt.Sprintf("%s entitled to %v", name, share), func() error {
		if v := h.VM(name); v.Entitled != share {
			return fmt.Errorf("it is to %v", v.Entitled)
		}
		return nil
	})
}

// TestGuarantee runs a guest with short kernels beside one with kernels ten times as long: without
// a policy it gets a tenth of the GPU, and with a guarantee most of it. The daemon's successor, and
// a daemon that reloads its configuration, keep to it.
func TestGuarantee(t *testing.T) {
	h := host.Start(t, "none")
	busy(t, h, api.VMSpec{Name: "long"}, 1500)
	busy(t, h, api.VMSpec{Name: "short", Guarantee: 0.7}, 150)
	most := func(why string) {
		t.Helper()
		h.Until(why, func() error {
			if long, short := used(h); short < long {
				return fmt.Errorf("the guaranteed used %.3f s, the other %.3f s", short, long)
			}
			return nil
		})
	}
	most("the guarantee")
	entitled(h, "short", 0.7)
	if v := h.VM("long"); v.Suspensions == 0 {
		t.Error("the other was never held")
	}
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	most("the guarantee after a restart")

	// An invalid configuration changes nothing.
	h.Config.GPUs[0].Policy = "lottery"
	h.WriteConfig()
	if err := h.Daemon.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	h.Until("a word about it", func() error { return logged(h, `configuration not reloaded`, `lottery`) })
	h.Config.GPUs[0].Policy = "dfq"
	h.Config.Metrics = "127.0.0.1:1"
	h.WriteConfig()
	if err := h.Daemon.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	h.Until("another policy", func() error {
		gpus, err := h.Client.GPUs(t.Context())
		if err == nil && gpus[0].Policy != "dfq" {
			err = fmt.Errorf("policy %s", gpus[0].Policy)
		}
		return err
	})
	h.Until("a word about what takes a restart", func() error { return logged(h, `need a restart`, `[metrics]`) })
	most("the guarantee under another policy")
	for _, name := range []string{"long", "short"} {
		if v := h.VM(name); v.Errors > 0 {
			t.Errorf("%s: %d errors", name, v.Errors)
		}
	}
}

// logged checks that the daemon has logged a line with all these words.
func logged(h *host.Host, words ...string) error {
lines:
	for line := range strings.Lines(h.Daemon.Log()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		return nil
	}
	return fmt.Errorf("no line of the log has %q", words)
}
