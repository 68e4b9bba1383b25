package bar0_test

import (
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/accounting/nvreg"
	"vgpud/gpu/nvidia/bar0"
)

var update = flag.Bool("update", false, "write the traces in testdata anew")

const (
	pci = "0000:41:00.0"
	us  = time.Microsecond
)

// host returns a root with one GPU whose registers the test writes.
func host(t *testing.T) (fs.FS, nvreg.File) {
	t.Helper()
	dir := t.TempDir()
	device := filepath.Join(dir, "sys/bus/pci/devices", pci)
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(device, "resource0"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(nvreg.Size); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, nvreg.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	file, err := nvreg.NewFile(mem)
	if err != nil {
		t.Fatal(err)
	}
	return os.DirFS(dir), file
}

// TestTraces replays each trace into the registers while the sampler's meter reads them, and
// compares the meter with the trace.
func TestTraces(t *testing.T) {
	if *update {
		if err := writeTraces(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d traces: %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			tr, err := readTrace(name)
			if err != nil {
				t.Fatal(err)
			}
			root, file := host(t)
			p := &player{trace: tr, file: file}
			p.until(0)
			registers, err := bar0.Open(root, strings.ToUpper(pci))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := registers.Close(); err != nil {
					t.Error(err)
				}
			}()
			source, err := accounting.OpenRegisters(registers.Space, p.now, accounting.RegisterOptions{})
			if tr.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tr.refused) {
					t.Fatalf("opened with %v, want %q", err, tr.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			phase, err := watch(source, p)
			switch {
			case tr.gone:
				if !errors.Is(err, accounting.ErrGone) {
					t.Fatalf("the GPU went, and: %v", err)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if off := phase.End - p.gpuTime(); math.Abs(float64(off)) > float64(us) {
				t.Errorf("the clock is off by %v", off)
			}
			for g, want := range tr.busy {
				within := 20 * us
				if tr.timer {
					within = want / 50 // of a recording, which has gaps
				}
				if got := phase.Of(g).Busy; got < want-within || got > want+within {
					t.Errorf("group %d was busy for %v, want %v within %v", g, got, want, within)
				}
			}
			if len(phase.Groups) != len(tr.busy) {
				t.Errorf("groups %+v, want %v", phase.Groups, tr.busy)
			}
		})
	}
}

// watch polls to the trace's end, as a sampler does.
func watch(source *accounting.Registers, p *player) (phase accounting.Phase, err error) {
	st, err := source.Sample()
	if err != nil {
		return phase, err
	}
	m := accounting.NewMeter(accounting.Config{})
	m.Begin(st)
	for p.now() < p.trace.length {
		if !source.Changed() {
			m.Unchanged(1)
			continue
		}
		if st, err = source.Sample(); err != nil {
			return phase, err
		}
		m.Observe(st)
	}
	if st, err = source.Sample(); err != nil {
		return phase, err
	}
	m.Cut(st, &phase)
	return phase, nil
}

// refusing is a root whose registers can't be opened.
type refusing struct {
	fs.FS
	err error
}

func (r refusing) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "resource0") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: r.err}
	}
	return r.FS.Open(name)
}

// TestRefusalsAreExplained checks that errors give the reason and advice.
func TestRefusalsAreExplained(t *testing.T) {
	locked := fstest.MapFS{"sys/kernel/security/lockdown": {Data: []byte("none [integrity] confidentiality\n")}}
	for _, c := range []struct {
		root fs.FS
		want []string
	}{
		{refusing{locked, unix.EPERM}, []string{pci, "(lockdown: integrity)", "source: events"}},
		{refusing{fstest.MapFS{}, unix.EPERM}, []string{"access to devices' registers: boot without secure boot"}},
		{refusing{locked, unix.EACCES}, []string{"as root", "source: events"}},
		{refusing{locked, unix.EINVAL}, []string{"iomem=relaxed"}},
		{locked, []string{pci, "no such device"}},
		{fstest.MapFS{"sys/bus/pci/devices/" + pci + "/resource0": {}}, []string{"unsupported"}}, // not a file of the host
	} {
		_, err := bar0.Open(c.root, pci)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q in it", err, want)
			}
		}
	}
}

// TestNotARegisterSpace maps a BAR of size 0, as of a GPU without power.
func TestNotARegisterSpace(t *testing.T) {
	dir := t.TempDir()
	device := filepath.Join(dir, "sys/bus/pci/devices", pci)
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(device, "resource0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bar0.Open(os.DirFS(dir), pci); err == nil {
		t.Error("mapped nothing at all")
	}
}
