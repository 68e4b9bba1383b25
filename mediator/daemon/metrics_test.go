package daemon

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"vgpud/fairshare"
	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/exposition"
	"vgpud/mediator/launchqueue"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fakeHost is a host that shows what it was made with.
type fakeHost struct {
	api.Host
	vms   []api.VM
	gpus  []api.GPU
	tasks api.Tasks
}

func (e fakeHost) VMs() []api.VM { return e.vms }
func (e fakeHost) Health() api.Health {
	return api.Health{Version: "1.2.3", Healthy: true}
}
func (e fakeHost) GPUs() []api.GPU  { return e.gpus }
func (e fakeHost) Tasks() api.Tasks { return e.tasks }

// scrape returns the metrics of a host.
func scrape(t *testing.T, h api.Host) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry() // which compares metrics with their descriptions
	if err := r.Register(exposition.Collector(source{h})); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(w.Body.String(), `goversion="go"`)
}

var twoGuests = fakeHost{
	vms: []api.VM{
		{
			Name: "web1", Domain: "web one", GPU: "gpu0", Owner: "research", Sanction: quota.Throttled,
			Budget:      &budget.Status{Budget: quota.Budget{Hard: time.Hour}, Used: time.Minute},
			OwnerBudget: &budget.Status{Budget: quota.Budget{Soft: time.Hour, Hard: 2 * time.Hour}, Used: 3 * time.Hour, Level: quota.OverHard},
			Weight:      2, Cap: 0.5, Guarantee: 0.125, Attached: true, Contexts: 3, Suspended: true, GPUSeconds: 12.5, Share: 0.625, Entitled: 2. / 3,
			SuspendedSeconds: 1.5, Suspensions: 7, Kernels: 1000, Errors: 10, ErrorReasons: api.ErrorReasons{Request: 1, Memory: 2, Other: 7}, CopiedBytes: 1 << 40, Commands: 5000, Doorbells: 12, PriorityCeiling: 3,
			Preemption: api.Preemption{
				Launches: api.Launches{Waiting: 4, Running: 2, Leaving: 1}, Evictions: 30, EvictionSeconds: 0.25, EvictionTimes: api.Histogram{Count: 2, Seconds: 1.5, Buckets: []api.Bucket{{UpTo: 1, Count: 1}}}, Caused: 20, ChargedSeconds: 0.125,
				Unresponsive: 2, IgnoredPriorities: 5, Prediction: api.Prediction{Launches: 900, PredictedSeconds: 10, MeasuredSeconds: 12, ErrorRatio: 0.1875},
			},
			Control: api.Control{
				Contexts: 3, Disabled: 2, Disables: 40, DisableSeconds: 0.025, EnableSeconds: 0.0125, DisabledSeconds: 1.25,
				TimeSliceSeconds: 0.0078125, TimeSlices: 9, Errors: 1, Problem: "context 2: busy",
			},
		},
		{Name: "web2", GPU: "gpu0", Weight: 1},
		{
			Name: "floats", GPU: "gpu1", Float: true, Weight: 1, Contexts: 3, MemoryUsedBytes: 96, GPUSeconds: 1.75, BusyRatio: 0.375,
			OnGPUs: []api.OnGPU{
				{GPU: "gpu0", Contexts: 2, MemoryUsedBytes: 32, GPUSeconds: 1.5, BusyRatio: 0.25},
				{GPU: "gpu1", Contexts: 1, MemoryUsedBytes: 64, GPUSeconds: 0.25, BusyRatio: 0.125},
			},
		},
	},
	gpus: []api.GPU{{
		Name: "gpu0", Kind: "soft", Model: "vgpud soft GPU", Policy: "dfq", VMs: 2, Healthy: true, BusyRatio: 0.75, BusySeconds: 20, IdleSeconds: 5,
		SwitchingSeconds: 0.25, Switches: 321, Rounds: 1234, AccountingCPUSeconds: 3.5, WatchedSeconds: 4, Polls: 1e9, Gaps: 2, GapSeconds: 1e-4, RecordsLost: 6, RealTime: true,
		Overruns: 3, OverrunSeconds: 0.125,
		Evictions:  evicted(300*time.Microsecond, ms, 3*time.Second),
		Prediction: api.Prediction{ErrorRatio: 0.25},
	}, {
		Name: "gpu1", Kind: "nvidia", Model: "NVIDIA H100 80GB HBM3", Policy: "none", Healthy: true, Hardware: theHardware, GrantedBytes: 3 << 30,
	}},
	tasks: api.Tasks{
		Tasks: []api.Task{{VM: "web2", State: api.TaskPlaced, GPU: "gpu1"}, {VM: "web2", Context: 1, State: api.TaskWaits}, {VM: "web2", Context: 2, State: api.TaskWaits}},
		Waits: api.Histogram{Count: 4, Seconds: 2.5, Buckets: []api.Bucket{{UpTo: 0.001, Count: 3}, {UpTo: 10, Count: 4}}},
	},
}

// theHardware has a value in each field.
var theHardware = &api.Hardware{
	UUID: "GPU-1", PCI: "0000:05:00.0", Driver: "580.159.04", CUDA: "13.0", MIG: "off", ComputeMode: "default", Persistence: "on",
	TemperatureCelsius: new(31.), PowerWatts: new(70.5), PowerLimitWatts: new(700.), SMClockHertz: new(1.98e9), MemoryClockHertz: new(2.619e9),
	MemoryUsedBytes: new(uint64(1 << 30)), BusyRatio: new(0.5), MemoryBusyRatio: new(0.25), Throttled: []string{"power-cap"},
	ECCCorrected: new(uint64(3)), ECCUncorrected: new(uint64(0)), Xids: []api.XidCount{{Xid: 31, Count: 2}},
}

// evicted returns evictions that took so long.
func evicted(took ...time.Duration) api.Evictions {
	var e launchqueue.Evictions
	for _, d := range took {
		e.Add(d)
	}
	for i, use := range []fairshare.SpatialUse{
		fairshare.SpatialNotConsidered, fairshare.SpatialUseful, fairshare.SpatialTakesTurns, fairshare.SpatialNeedsAll, fairshare.SpatialUnknown,
	} {
		for range i + 1 {
			e.Ask(use)
		}
	}
	s := e.Summary()
	return apiEvictions(&s)
}

func TestMetricsGolden(t *testing.T) {
	got, path := scrape(t, twoGuests), filepath.Join("testdata", "metrics.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("metrics (-want +got; go test -update writes them anew):\n%s", diff)
	}
}

// TestMetricsKeepTheirShape: whatever state guests and GPUs are in, the series have the same names
// and labels.
func TestMetricsKeepTheirShape(t *testing.T) {
	series := regexp.MustCompile(`(?m)^vgpud_\w+(\{.*\})?`)
	value := regexp.MustCompile(`"[^"]*"`)
	shape := func(h api.Host) []string {
		var names []string
		for _, s := range series.FindAllString(scrape(t, h), -1) {
			names = append(names, value.ReplaceAllString(s, ""))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	own := 1.0
	others := fakeHost{
		vms:  []api.VM{{Name: "x", GPU: "gpu9", Active: true, GPUSecondsOwn: &own, Groups: []uint16{1}}},
		gpus: []api.GPU{{Name: "gpu9", Problem: "gone", RealTimeProblem: "no right to it", Hardware: theHardware}},
	}
	if diff := cmp.Diff(shape(twoGuests), shape(others)); diff != "" {
		t.Errorf("series (-one +other):\n%s", diff)
	}
}
