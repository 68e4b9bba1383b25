package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"vgpud/fairshare"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
)

const leastConfig = "gpus: [{name: gpu0, socket: /run/vgpud/gpu0.sock}]\n"

func TestConfigDefaults(t *testing.T) {
	got, err := ParseConfig([]byte(leastConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		RunDir: "/run/vgpud", StateDir: "/var/lib/vgpud", Socket: "/run/vgpud/vgpud.sock",
		GPUs: []GPUConfig{{Name: "gpu0", Kind: "soft", Socket: "/run/vgpud/gpu0.sock", Policy: "dfq"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w, err := got.GPUs[0].Accounting.watching(1)
	if err != nil {
		t.Fatal(err)
	}
	if a := w.Registers; a.Poll != time.Millisecond || a.Quiet != 5*time.Millisecond || a.Round != 24*time.Millisecond {
		t.Errorf("accounting polls %v, rests %v, at most %v a round", a.Poll, a.Quiet, a.Round)
	}
}

// TestManyGPUs: the polling threads of many GPUs leave time on their processor.
func TestManyGPUs(t *testing.T) {
	for gpus, want := range map[int]time.Duration{1: 5 * ms, 4: 5 * ms, 8: 10 * ms, 16: 20 * ms} {
		w, err := AccountingConfig{}.watching(gpus)
		if err != nil {
			t.Fatal(err)
		}
		a := w.Registers
		if busy := float64(gpus) * float64(a.Poll) / float64(a.Poll+a.Quiet); a.Quiet != want || busy > 0.8 {
			t.Errorf("%d GPUs: quiet for %v, want %v; the processor is busy for %.2f of the time", gpus, a.Quiet, want, busy)
		}
	}
	if w, err := (AccountingConfig{Quiet: 3 * ms}).watching(16); err != nil || w.Registers.Quiet != 3*ms {
		t.Errorf("quiet for %v, %v, although 3ms is configured", w.Registers.Quiet, err)
	}
}

func TestConfigWhole(t *testing.T) {
	got, err := ParseConfig([]byte(`
run_dir: /tmp/v
metrics: 127.0.0.1:19835
kernel_time_limit: 1m
eviction_deadline: 2s
gpus:
- name: gpu0
  kind: soft
  socket: /tmp/v/gpu0.sock
  policy: none
  accounting: {poll: 2ms, quiet: 8ms, round: 40ms, piece: 200µs, jitter: 0.25, full: true, idle: compared, by_channels: true}
- {name: gpu1, socket: /tmp/v/gpu1.sock}
- {name: gpu2, kind: nvidia, device: "0000:3b:00.0", allow_unknown_driver: true, connections: 2, accounting: {source: events, interval: 20ms}, deep_after: 5ms, time_slices: off, slice_loss: 0.05, max_overhead: 0.02}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		RunDir: "/tmp/v", StateDir: "/tmp/v", Socket: "/tmp/v/vgpud.sock", Metrics: "127.0.0.1:19835", KernelTimeLimit: TimeLimit(time.Minute), EvictionDeadline: TimeLimit(2 * time.Second),
		GPUs: []GPUConfig{
			{Name: "gpu0", Kind: "soft", Socket: "/tmp/v/gpu0.sock", Policy: "none", Accounting: AccountingConfig{
				Poll: 2 * ms, Quiet: 8 * ms, Round: 40 * ms, Piece: 200 * time.Microsecond, Jitter: 0.25, Full: true, Idle: "compared", ByChannels: true,
			}},
			{Name: "gpu1", Kind: "soft", Socket: "/tmp/v/gpu1.sock", Policy: "dfq"},
			{Name: "gpu2", Kind: "nvidia", Policy: "dfq", Device: "0000:3b:00.0", AllowUnknownDriver: true, Connections: 2, Accounting: AccountingConfig{Source: "events", Interval: 20 * ms}, DisableAfter: TimeLimit(5 * ms), TimeSlices: slicesOff, SliceLoss: 0.05, MaxOverhead: 0.02},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigRefusals(t *testing.T) {
	gpu := func(s string) string { return "gpus: [{name: gpu0, socket: /s, " + s + "}]" }
	for text, want := range map[string]string{
		"":                                     "gpus: want at least one",
		"gpus: []":                             "gpus: want at least one",
		"gpus: [{name: g}]":                    "gpus[0] (g): socket: want the path that `vgpud softgpu` listens on",
		"gpus: [{socket: /s}]":                 `gpus[0]: name "": want 1 to 64 letters`,
		"gpus: [{name: ../g, socket: /s}]":     `gpus[0]: name "../g": want`,
		leastConfig + "gpu_s: 1":               "line 2: gpu_s: unknown key; do you mean gpus?",
		leastConfig + "run_dir: [":             "line 2",
		leastConfig + "kernel_time_limit: 0s":  `line 2: kernel_time_limit: time limit "0s"`,
		leastConfig + "kernel_time_limit: [1]": "line 2: kernel_time_limit: found a list, want one value",
		leastConfig + "usage: {keep_days: {forever: 1}}":                 "line 2: usage.keep_days: found keys, want one value",
		leastConfig + "---\nkernel_time_limit: 1s\n":                     "second document",
		leastConfig + "---\n]":                                           "second document",
		"gpus: 7":                                                        `line 1: gpus: found "7", want a list`,
		gpu("kind: nvidia"):                                              `gpus[0] (gpu0): socket: a GPU of kind "nvidia" has none; device says which it is`,
		gpu("kind: voodoo"):                                              `gpus[0] (gpu0): kind "voodoo": want "soft" or "nvidia"`,
		gpu("device: GPU-1"):                                             `gpus[0] (gpu0): device, allow_unknown_driver and connections are for kind "nvidia"`,
		gpu("connections: 4"):                                            `gpus[0] (gpu0): device, allow_unknown_driver and connections are for kind "nvidia"`,
		"gpus: [{name: gpu0, kind: nvidia, connections: 33}]":            "connections 33: want 2 to 32, or 0 for CUDA's own choice",
		"gpus: [{name: gpu0, kind: nvidia, connections: 1}]":             "connections 1: want 2 to 32",
		gpu("policy: lottery"):                                           `line 1: gpus[0] (gpu0): policy "lottery": want one of ` + strings.Join(fairshare.Names(), ", "),
		gpu("accounting: {source: tea}"):                                 `source "tea": want one of auto, registers, events`,
		gpu("accounting: {interval: 1s}"):                                "interval 1s: want 1ms to 250ms",
		gpu("time_slices: 3ms"):                                          `gpus[0] (gpu0): time_slices "3ms": want auto or off`,
		gpu("slice_loss: 1.5"):                                           "slice_loss 1.5: want 0.002 to 0.2",
		gpu("slice_loss: .nan"):                                          "slice_loss NaN: want 0.002 to 0.2",
		gpu("deep_after: soon"):                                          `time limit "soon"`,
		gpu("accounting: {idle: maybe}"):                                 `idle mode "maybe": want one of`,
		gpu("accounting: {poll: -1ms}"):                                  "poll -1ms and quiet 5ms must not be negative",
		gpu("accounting: {poll: soon}"):                                  `line 1: gpus[0].accounting.poll: found "soon", want a duration with its unit`,
		gpu("accounting: {poll: 999999h}"):                               "poll 999999h0m0s: want at most 1s, since decisions come once a round",
		gpu("accounting: {quiet: 1001ms}"):                               "quiet 1.001s: want at most 1s",
		gpu("accounting: {round: 1h}"):                                   "round 1h0m0s: want at most 1s",
		gpu("accounting: {piece: 2s}"):                                   "piece 2s: want at most 1s",
		gpu("deep_after: 61s"):                                           "deep_after 1m1s: want at most 1m0s, or none",
		leastConfig + "eviction_deadline: 999999h":                       `line 2: eviction_deadline: time limit "999999h"`,
		leastConfig + "eviction_deadline: 2m":                            "eviction_deadline 2m0s: want at most 1m0s, or none",
		leastConfig + "kernel_time_limit: 25h":                           `line 2: kernel_time_limit: time limit "25h": want "none" or a positive duration up to 24h0m0s`,
		leastConfig + "confinement: {memory_bytes: 1}":                   "line 2: confinement: memory_bytes 1: want 268435456 to",
		leastConfig + "confinement: {memory_bytes: 9000000000000000000}": "memory_bytes 9000000000000000000: want",
		leastConfig + "confinement: {processes: 3}":                      "processes 3: want 64 to 4194304",
		leastConfig + "confinement: {processes: 999999999}":              "processes 999999999: want 64 to 4194304",
		gpu("accounting: {jitter: 1.5}"):                                 "jitter 1.5: want at most 1",
		gpu("accounting: {jitter: .nan}"):                                "jitter: want a number",
		gpu("accounting: {quite: 1ms}"):                                  "line 1: gpus[0].accounting.quite: unknown key; do you mean quiet?",
		"gpus: [{name: g, socket: /s}, {name: g, socket: /t}]":           `gpus[1]: a second GPU named "g"`,
		gpu("max_overhead: 0.9"):                                         "max_overhead 0.9: want 0.005 to 0.5",
		gpu("max_overhead: .nan"):                                        "max_overhead NaN: want 0.005 to 0.5",
	} {
		_, err := ParseConfig([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v, want %q", text, err, want)
		}
	}
}

func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vgpud.yaml")
	if _, err := ReadConfig(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("gpus: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err == nil || !strings.Contains(err.Error(), path+":1: gpus: ") {
		t.Errorf("error %v does not name the file", err)
	}
	if err := os.WriteFile(path, []byte(leastConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err != nil {
		t.Error(err)
	}
}

func TestKernelTimeLimit(t *testing.T) {
	for _, c := range []struct {
		config      string
		asked, want time.Duration
	}{
		{"", 0, 10 * time.Second},
		{"", time.Hour, time.Hour},
		{"", api.NoTimeLimit, 0},
		{"kernel_time_limit: 2s\n", 0, 2 * time.Second},
		{"kernel_time_limit: 2s\n", 3 * time.Second, 3 * time.Second},
		{"kernel_time_limit: none\n", 0, 0},
		{"kernel_time_limit: none\n", time.Second, time.Second},
	} {
		conf, err := ParseConfig([]byte(leastConfig + c.config))
		if err != nil {
			t.Fatal(err)
		}
		if got := conf.kernelTimeLimit(c.asked); got != c.want {
			t.Errorf("%q, asked for %v: %v, want %v", c.config, c.asked, got, c.want)
		}
	}
}

func TestEvictionDeadline(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                          DefaultEvictionDeadline,
		"eviction_deadline: 20ms\n": 20 * ms,
		"eviction_deadline: none\n": 0,
	} {
		conf, err := ParseConfig([]byte(leastConfig + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := conf.evictionDeadline(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestInstalledConfig: the configuration that is installed has the defaults.
func TestInstalledConfig(t *testing.T) {
	got, err := ReadConfig(filepath.Join("..", "..", "deploy", "vgpud.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseConfig([]byte(leastConfig))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it says other than the defaults (-defaults +it):\n%s", diff)
	}
}

// TestControlConfig: how contexts are controlled, by the values of the keys.
func TestControlConfig(t *testing.T) {
	limits := fairshare.SliceLimits{Loss: 0.02, Switch: 84 * time.Microsecond, Min: ms, Max: 65 * ms}
	tenth := limits
	tenth.Loss = 0.1
	for text, want := range map[string]scheduler.Control{
		"":                   {DisableAfter: 2 * ms, Slices: limits},
		"deep_after: 7ms":    {DisableAfter: 7 * ms, Slices: limits},
		"deep_after: none":   {DisableAfter: 0, Slices: limits},
		"time_slices: auto":  {DisableAfter: 2 * ms, Slices: limits},
		"time_slices: off":   {DisableAfter: 2 * ms},
		"time_slices: 'off'": {DisableAfter: 2 * ms},
		"slice_loss: 0.1":    {DisableAfter: 2 * ms, Slices: tenth},
	} {
		c, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /s, " + text + "}]"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.GPUs[0].control(); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		// A configuration that is written is read as the same.
		b, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseConfig(b); err != nil || cmp.Diff(c, again) != "" {
			t.Errorf("%s: %v after writing and reading (-was +is):\n%s", text, err, cmp.Diff(c, again))
		}
	}
}

// TestConfiguredBusyWait: YAML's booleans are among the values, which older configurations have.
func TestConfiguredBusyWait(t *testing.T) {
	for text, want := range map[string]scheduler.BusyWaitMode{"true": scheduler.BusyWaitAlways, "false": scheduler.BusyWaitNever, "auto": scheduler.BusyWaitAuto, `""`: scheduler.BusyWaitAuto} {
		c, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, spin: " + text + "}]"))
		if err != nil || c.GPUs[0].busyWait().Mode != want {
			t.Errorf("spin: %s is %d, %v", text, c.GPUs[0].busyWait().Mode, err)
		}
	}
	if _, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, spin: sometimes}]")); err == nil {
		t.Error("spin: sometimes passes")
	}
}

func TestWarmExecutors(t *testing.T) {
	for _, c := range []struct {
		gpu  string
		want bool
	}{
		{"socket: /gpu.sock", false},
		{"socket: /gpu.sock, warm_executors: auto", false},
		{"socket: /gpu.sock, warm_executors: true", true},
		{"kind: nvidia", true},
		{"kind: nvidia, warm_executors: false", false},
	} {
		config, err := ParseConfig([]byte("gpus: [{name: gpu0, " + c.gpu + "}]"))
		if err != nil || config.GPUs[0].ipcGPU().WarmExecutors != c.want {
			t.Errorf("%s: %v, want %v (%v)", c.gpu, !c.want, c.want, err)
		}
	}
	if _, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, warm_executors: hot}]")); err == nil {
		t.Error("warm_executors: hot passes")
	}
}

// TestConfiguredPoll: the limit can be none, and no more than executors obey.
func TestConfiguredPoll(t *testing.T) {
	for text, want := range map[string]time.Duration{"": DefaultUrgentPoll, "urgent_poll: 2ms": 2 * ms, "urgent_poll: none": 0, "urgent_poll: 20ms": ipc.MaxPollLimit} {
		c, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, " + text + "}]"))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := c.GPUs[0].busyWait().PollLimit; got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	if _, err := ParseConfig([]byte("gpus: [{name: gpu0, socket: /gpu.sock, urgent_poll: 21ms}]")); err == nil {
		t.Error("urgent_poll: 21ms passes")
	}
}
