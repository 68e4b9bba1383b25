package daemon

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/accounting"
	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
	"vgpud/mediator/ipc"
)

// pageHeader is the part of a page before all words that a guest's process may spoil. It has the
// page's version, and is read once.
const pageHeader = 64

// overwrite writes over all of a page but its header.
func overwrite(t *testing.T, p *ipc.ControlPage, next func() byte) {
	t.Helper()
	b := make([]byte, ipc.ControlPageBytes-pageHeader)
	for i := range b {
		b[i] = next()
	}
	if _, err := p.File().WriteAt(b, pageHeader); err != nil {
		t.Fatal(err)
	}
}

// outOfRange returns the numbers in v that no guest can reach.
func outOfRange(path string, v reflect.Value) (bad []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return outOfRange(path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bad = append(bad, outOfRange(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			bad = append(bad, outOfRange(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 || v.Int() > 1<<53 {
			bad = append(bad, fmt.Sprintf("%s = %d", path, v.Int()))
		}
	case reflect.Uint64:
		most := uint64(1 << 53)
		if strings.HasSuffix(path, "CopiedBytes") {
			most = 1 << 62
		}
		if v.Uint() > most {
			bad = append(bad, fmt.Sprintf("%s = %d", path, v.Uint()))
		}
	case reflect.Float64:
		// In seconds: some hundred years.
		if x := v.Float(); !(x >= 0 && x <= 1<<33) {
			bad = append(bad, fmt.Sprintf("%s = %v", path, x))
		}
	}
	return bad
}

// oneVM is a host with one guest.
type oneVM struct {
	api.Host
	v api.VM
}

func (h oneVM) VMs() []api.VM      { return []api.VM{h.v} }
func (h oneVM) GPUs() []api.GPU    { return nil }
func (h oneVM) Tasks() api.Tasks   { return api.Tasks{} }
func (h oneVM) Health() api.Health { return api.Health{} }

// TestPageWordsAreBounded: whatever a guest's processes write on its page, the API and the metrics
// show possible values, and counters do not go back.
func TestPageWordsAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 9))
	constant := func(b byte) func() byte { return func() byte { return b } }
	d := startDaemon(t, runDir(t))
	d.create("a")
	g, loop := d.guest("a"), d.service.devices[0].loop
	for i, group := range []uint16{1, 2, 3} {
		g.page.Context(i).Reset(1)
		g.page.Context(i).SetReady(group)
	}
	if err := loop.SetPolicy("hpf"); err != nil {
		t.Fatal(err)
	}
	loop.Changed(0)
	var last api.VM
	for round, next := range []func() byte{
		constant(0xff), constant(0x80), constant(0x7f), constant(0), constant(1),
		func() byte { return byte(random.Uint32()) }, func() byte { return byte(random.Uint32()) }, func() byte { return byte(random.Uint32()) & 1 }, constant(0),
	} {
		overwrite(t, g.page, next)
		loop.PollEnded(&accounting.Phase{End: ms, Groups: []accounting.GroupTime{{Group: 1, Busy: ms, Runs: 1}}})
		loop.QuietEnded(&accounting.Quiet{Unwatched: 5 * ms})
		loop.LaunchesChanged()
		v := d.vm("a")
		if bad := outOfRange("", reflect.ValueOf(v)); len(bad) > 0 {
			t.Errorf("round %d: the API shows %v", round, bad)
		}
		if bad := outOfRange("GPU", reflect.ValueOf(d.gpu())); len(bad) > 0 {
			t.Errorf("round %d: the API shows %v", round, bad)
		}
		if _, err := json.Marshal(v); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		for what, grew := range map[string]bool{
			"kernels": v.Kernels >= last.Kernels, "errors": v.Errors >= last.Errors, "bytes": v.CopiedBytes >= last.CopiedBytes,
			"commands": v.Commands >= last.Commands, "doorbells": v.Doorbells >= last.Doorbells,
			"evictions": v.Preemption.Evictions >= last.Preemption.Evictions, "GPU time": v.GPUSeconds >= last.GPUSeconds,
		} {
			if !grew {
				t.Errorf("round %d: fewer %s: %+v after %+v", round, what, v, last)
			}
		}
		last = v
		registry := prometheus.NewRegistry()
		registry.MustRegister(exposition.Collector(source{oneVM{v: v}}))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if x := m.GetCounter().GetValue() + m.GetGauge().GetValue(); !(x >= 0 && x <= 1<<62) {
					t.Errorf("round %d: %s is %v", round, f.GetName(), x)
				}
			}
		}
	}
	// The bill of a guest whose state no daemon has saved is limited by the time that has passed.
	g.page.SetBill(ipc.Bill{Used: math.MaxInt64, Suspended: math.MaxInt64, Suspensions: math.MaxUint64, Caused: math.MaxUint64, Charged: math.MaxInt64})
	if got, most := new(savedState).limitBill(g.page.Bill(), time.Hour), (ipc.Bill{Used: time.Hour, Suspended: time.Hour, Suspensions: 3_600_000, Caused: 3_600_000, Charged: time.Hour}); got != most {
		t.Errorf("%+v, want at most %+v", got, most)
	}
}
