package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"vgpud/cmd/internal/ability"
)

func TestEmulator(t *testing.T) {
	day := func(n int) *fstest.MapFile {
		return &fstest.MapFile{Mode: 0o755, ModTime: time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC)}
	}
	const answer = "vgpu-qemu version 1.0 runs /usr/bin/qemu-system-x86_64\n"
	for name, test := range map[string]struct {
		wrapper, cached, qemu int // days; 0: the file is not there
		answer                string
		err                   error
		state                 ability.State
		what, do              string
	}{
		"none":                       {qemu: 1, state: ability.Absent, what: "there is no vgpu-qemu", do: "deploy/nova/install.sh"},
		"new":                        {wrapper: 2, qemu: 1, answer: answer, state: ability.Present, what: "runs /usr/bin/qemu-system-x86_64"},
		"known to libvirt":           {wrapper: 2, cached: 3, qemu: 1, answer: answer, state: ability.Present},
		"after QEMU's upgrade":       {wrapper: 2, cached: 3, qemu: 4, answer: answer, state: ability.Present, do: "touch /usr/local/bin/qemu-system-x86_64"},
		"touched after that":         {wrapper: 5, cached: 3, qemu: 4, answer: answer, state: ability.Present},
		"QEMU is gone":               {wrapper: 2, answer: answer, state: ability.Present, do: "can't be looked at"},
		"it finds no QEMU":           {wrapper: 2, err: errors.New("there is no QEMU but this program"), state: ability.Absent, what: "there is no QEMU but this program"},
		"another program":            {wrapper: 2, qemu: 1, answer: "QEMU emulator version 11.1.3\n", state: ability.Absent, what: "is another program"},
		"another program that fails": {wrapper: 2, qemu: 1, err: errors.New("--vgpu-qemu: invalid option"), state: ability.Absent, what: "invalid option", do: "remove it"},
	} {
		h, _ := fullHost()
		files := fstest.MapFS{}
		for path, n := range map[string]int{wrapper: test.wrapper, capabilities: test.cached, "usr/bin/qemu-system-x86_64": test.qemu} {
			if n > 0 {
				files[path] = day(n)
			}
		}
		h.Files = files
		h.Run = func(_ context.Context, program string, args ...string) (string, error) {
			if program != "/"+wrapper || len(args) != 1 || args[0] != "--vgpu-qemu" {
				t.Errorf("%s: ran %s %q", name, program, args)
			}
			return test.answer, test.err
		}
		got := emulator(t.Context(), h)[0]
		if got.State != test.state || !strings.Contains(got.What, test.what) || !strings.Contains(got.Do, test.do) || test.do == "" && got.Do != "" && test.state == ability.Present {
			t.Errorf("%s: %+v, want %s, %q, %q", name, got, test.state, test.what, test.do)
		}
	}
}
