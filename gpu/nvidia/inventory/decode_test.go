package inventory

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func number[T any](v T) *T { return &v }

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Message
		err        string
	}{
		{
			name: "inventory",
			line: `{"inventory":{"driver":"580.159.04","cuda":13000,"gpus":[{"index":0,"uuid":"GPU-1","pci":"0000:05:00.0","name":"H100","memory_bytes":85520809984,"mig":"off","compute_mode":"default","persistence":"on"}]}}`,
			want: Message{Inventory: &Inventory{Driver: "580.159.04", CUDA: 13000, GPUs: []GPU{
				{UUID: "GPU-1", PCI: "0000:05:00.0", Name: "H100", MemoryBytes: 85520809984, MIG: "off", ComputeMode: "default", Persistence: "on"},
			}}},
		},
		{
			name: "samples",
			line: `{"samples":[{"uuid":"GPU-1","temperature_celsius":31,"power_watts":70.5,"throttled":["power-cap"],"recovery":"none"},{"uuid":"GPU-2","lost":true}]}`,
			want: Message{Samples: []Sample{
				{UUID: "GPU-1", TemperatureCelsius: number(31.), PowerWatts: number(70.5), Throttled: []string{"power-cap"}, Recovery: RecoveryNone},
				{UUID: "GPU-2", Lost: true},
			}},
		},
		{name: "no GPUs", line: `{"samples":[]}`, want: Message{Samples: []Sample{}}},
		{name: "Xid", line: `{"xid":{"uuid":"GPU-1","xid":31}}`, want: Message{Xid: &XidEvent{UUID: "GPU-1", Xid: 31}}},
		{
			name: "error", line: `{"error":{"text":"no\u0007 library","unavailable":true}}`,
			want: Message{Error: &Problem{Text: "no library", Unavailable: true}},
		},
		{
			name: "texts are made plain",
			line: `{"inventory":{"driver":"` + strings.Repeat("5", 200) + `","cuda":0,"gpus":[{"uuid":"GPU-1","name":"H\u001b[31m100\n"}]}}`,
			want: Message{Inventory: &Inventory{Driver: strings.Repeat("5", 128), GPUs: []GPU{{UUID: "GPU-1", Name: "H[31m100"}}}},
		},
		{name: "nothing", line: `{}`, err: "a line of vgpu-nvml: it says nothing"},
		{name: "half a line", line: `{"xid":`, err: "decode a line: unexpected end of JSON input"},
		{name: "no UUID", line: `{"xid":{"xid":31}}`, err: `UUID "": want GPU-…`},
		{name: "a UUID that is none", line: `{"samples":[{"uuid":"GPU-\n1"}]}`, err: `sample 0: UUID "GPU-1": want GPU-…`},
		{name: "many GPUs", line: `{"samples":[` + strings.Repeat(`{"uuid":"x"},`, 64) + `{"uuid":"x"}]}`, err: "65 GPUs: want at most 64"},
		{name: "many reasons", line: `{"samples":[{"uuid":"x","throttled":[` + strings.Repeat(`"a",`, 16) + `"a"]}]}`, err: "17 reasons of throttling"},
		{name: "a long line", line: strings.Repeat(" ", maxLine+1), err: "a line of 262145 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decode([]byte(c.line))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v; want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// TestAnH100 reads the program's output for an H100 under driver 580.159.04, idle again after other
// work, with its UUID changed.
func TestAnH100(t *testing.T) {
	f, err := os.Open("testdata/h100-580.159.04.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var v Inventory
	var clocks []float64
	var h Health
	if err := scan(f, func(m Message) error {
		if m.Inventory != nil {
			v = *m.Inventory
		}
		for _, s := range m.Samples {
			h.Sample(s)
			clocks = append(clocks, *s.SMClockHertz)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
	if diff := cmp.Diff(Inventory{Driver: "580.159.04", CUDA: 13000, GPUs: []GPU{{
		UUID: uuid, PCI: "0000:00:06.0", Name: "NVIDIA H100 80GB HBM3", MemoryBytes: 85520809984, MIG: "off", ComputeMode: "default", Persistence: "on",
	}}}, v); diff != "" {
		t.Errorf("inventory, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]float64{1.98e9, 1.98e9, 1.98e9, 1.98e9, 345e6}, clocks); diff != "" {
		t.Errorf("clocks, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(Sample{
		UUID: uuid, TemperatureCelsius: number(36.), PowerWatts: number(87.663), PowerLimitWatts: number(700.), SMClockHertz: number(345e6), MemoryClockHertz: number(2619e6),
		MemoryUsedBytes: number(uint64(480 << 20)), BusyRatio: number(0.), MemoryBusyRatio: number(0.), ECCCorrected: number(uint64(0)), ECCUncorrected: number(uint64(0)), Recovery: RecoveryNone,
	}, h.Last()); diff != "" || h.Problem() != "" {
		t.Errorf("problem %q; last sample, -want +got:\n%s", h.Problem(), diff)
	}
}

// FuzzDecode checks that the result for any line is bounded, and stays the same when encoded and
// decoded again.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f.Add([]byte(line))
		}
	}
	f.Add([]byte(`{"xid":{"uuid":"GPU-1","xid":31}}`))
	f.Add([]byte(`{"error":{"text":"\ufffd\u0000","unavailable":true}}`))
	f.Add([]byte(`{"inventory":{"driver":"ÄÄ","gpus":[{"uuid":"ä"}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Decode(line)
		if err != nil {
			return
		}
		if m.Inventory != nil && m.Error == nil {
			for _, g := range m.Inventory.GPUs {
				for _, s := range []string{g.UUID, g.PCI, g.Name, g.MIG, g.ComputeMode, g.Persistence} {
					if len(s) > maxText || !utf8.ValidString(s) {
						t.Errorf("a text of %d bytes: %q", len(s), s)
					}
				}
			}
		}
		for _, s := range m.Samples {
			if s.PowerWatts != nil && math.IsNaN(*s.PowerWatts) {
				t.Error("power is not a number")
			}
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		again, err := Decode(b)
		if diff := cmp.Diff(m, again); diff != "" || err != nil {
			t.Errorf("%v, -once +again:\n%s", err, diff)
		}
	})
}

func TestHealth(t *testing.T) {
	var h Health
	problem := func(want string) {
		t.Helper()
		if got := h.Problem(); (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("problem %q, want %q", got, want)
		}
	}
	fine := Sample{Recovery: RecoveryNone}
	problem("")
	h.Sample(fine)
	if h.Xid(31).Ends {
		t.Error("a page fault ends the GPU")
	}
	problem("")

	// The driver wants nothing done: the table's verdict holds for two samples.
	h.Xid(120)
	problem("Xid 120: the GPU's system processor (GSP) failed: stop vgpud")
	h.Sample(fine)
	h.Sample(Sample{Recovery: RecoveryReset})
	h.Sample(fine)
	problem("Xid 120")
	h.Sample(fine)
	problem("")

	// For this one the driver reports nothing.
	h.Xid(119)
	for range 5 {
		h.Sample(fine)
	}
	problem("Xid 119")

	// A driver without recoveries leaves the table's verdict.
	h.Xid(79)
	for range 5 {
		h.Sample(Sample{})
	}
	problem("Xid 79")

	h = Health{}
	for _, c := range []struct {
		recovery Recovery
		problem  string
	}{{RecoveryReset, "the driver wants the GPU reset"}, {RecoveryReboot, "the driver wants the host rebooted"}, {RecoveryDrainPeers, ""}, {"something new", ""}, {RecoveryNone, ""}} {
		h.Sample(Sample{Recovery: c.recovery})
		problem(c.problem)
	}
	h.Sample(Sample{Lost: true})
	problem("the driver can't reach it any more: reboot the host")
	h.Sample(fine)
	problem("")

	for _, x := range []uint64{94, 31, 31, 7777} {
		h.Xid(x)
	}
	want := []Count{{LookUp(31), 2}, {LookUp(94), 1}, {LookUp(7777), 1}}
	if diff := cmp.Diff(want, h.Xids()); diff != "" {
		t.Errorf("errors, -want +got:\n%s", diff)
	}
	for x := range uint64(10000) {
		h.Xid(x)
	}
	if n := len(h.Xids()); n != maxXids {
		t.Errorf("%d kinds of errors are counted, want %d", n, maxXids)
	}
}

func TestXids(t *testing.T) {
	for number := range xids {
		if x := LookUp(number); x.Number != number || x.What == "" || x.Ends && x.Do == "" {
			t.Errorf("%+v: want what happened, and what to do where the GPU can't go on", x)
		}
	}
	if got, want := LookUp(4711).String(), "Xid 4711: not known to this version: see NVIDIA's catalogue of Xid errors"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestXidsAreDocumented checks that docs/operations.md explains each error that needs an operator's
// action.
func TestXidsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[uint64]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+(?:, \d+)*) \|`).FindAllStringSubmatch(string(page), -1) {
		for s := range strings.SplitSeq(row[1], ", ") {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			documented[n] = true
		}
	}
	for n, x := range xids {
		if (x.Do != "") != documented[n] {
			t.Errorf("Xid %d: to do: %q; documented: %v", n, x.Do, documented[n])
		}
	}
	for n := range documented {
		if _, ok := xids[n]; !ok {
			t.Errorf("Xid %d is documented and not known", n)
		}
	}
}
