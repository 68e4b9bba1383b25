package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
)

// SeriesQuery is a query in PromQL for what [FromSeries] reads: the daemons' series that sums of
// hosts and projects take, and whether each target of the job answers.
func SeriesQuery(job string) string {
	return fmt.Sprintf(`{job=%q,__name__=~"up|vgpud_gpu_(%s)|vgpud_vm_(%s)"}`, job,
		"healthy|cordoned|memory_bytes|busy_ratio",
		"info|weight|cap_ratio|guarantee_ratio|memory_limit_bytes|busy_ratio|budget_(info|used_seconds|soft_seconds|hard_seconds)")
}

// vmKey names a guest in series. The label gpu of a guest that floats differs between its series.
type vmKey struct{ host, vm string }

// FromSeries returns what many daemons say, by their series in Prometheus. A host is the label
// instance. One that Prometheus does not reach has no series of its own, only up.
func FromSeries(all model.Vector) []Answer {
	hosts := make(map[string]*Answer)
	gpus := make(map[[2]string]*api.GPU)
	vms := make(map[vmKey]*api.VM)
	for _, s := range all {
		host := string(s.Metric[model.InstanceLabel])
		a := hosts[host]
		if a == nil {
			a = &Answer{Host: host}
			hosts[host] = a
		}
		value, name := float64(s.Value), string(s.Metric[model.MetricNameLabel])
		if name == "up" && value == 0 {
			a.Err = errors.New("it does not answer Prometheus")
			continue
		}
		gpu := string(s.Metric["gpu"])
		if set, ok := ofGPU[name]; ok {
			k := [2]string{host, gpu}
			if gpus[k] == nil {
				gpus[k] = &api.GPU{Name: gpu}
			}
			set(gpus[k], value)
		}
		if set, ok := ofVM[name]; ok {
			k := vmKey{host, string(s.Metric["vm"])}
			if vms[k] == nil {
				vms[k] = &api.VM{Name: k.vm}
			}
			set(vms[k], s.Metric, value)
		}
	}
	for k, g := range gpus {
		hosts[k[0]].GPUs = append(hosts[k[0]].GPUs, *g)
	}
	for k, v := range vms {
		if v.GPU == "" {
			continue // without vgpud_vm_info the daemon does not control it
		}
		if b := v.Budget; b != nil && b.Budget.Hard == 0 && b.Budget.Soft == 0 {
			v.Budget = nil
		}
		hosts[k.host].VMs = append(hosts[k.host].VMs, *v)
	}
	answers := make([]Answer, 0, len(hosts))
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		a := hosts[host]
		if a.Err != nil { // series of a moment ago
			a.GPUs, a.VMs = nil, nil
		}
		answers = append(answers, *a)
	}
	return answers
}

// ofGPU sets what each series of a GPU says.
var ofGPU = map[string]func(*api.GPU, float64){
	"vgpud_gpu_healthy":      func(g *api.GPU, v float64) { g.Healthy = v == 1 },
	"vgpud_gpu_cordoned":     func(g *api.GPU, v float64) { g.Cordoned = v == 1 },
	"vgpud_gpu_memory_bytes": func(g *api.GPU, v float64) { g.MemoryBytes = uint64(v) },
	"vgpud_gpu_busy_ratio":   func(g *api.GPU, v float64) { g.BusyRatio = v },
}

// ofVM sets what each series of a guest says.
var ofVM = map[string]func(*api.VM, model.Metric, float64){
	"vgpud_vm_info": func(v *api.VM, m model.Metric, _ float64) {
		v.GPU, v.Project, v.Owner = string(m["gpu"]), string(m["project"]), string(m["owner"])
	},
	"vgpud_vm_weight": func(v *api.VM, _ model.Metric, x float64) { v.Weight = x },
	"vgpud_vm_cap_ratio": func(v *api.VM, _ model.Metric, x float64) {
		if x < 1 { // 1 is none
			v.Cap = x
		}
	},
	"vgpud_vm_guarantee_ratio":    func(v *api.VM, _ model.Metric, x float64) { v.Guarantee = x },
	"vgpud_vm_memory_limit_bytes": func(v *api.VM, _ model.Metric, x float64) { v.MemoryLimitBytes = uint64(x) },
	// Of a guest that floats there is a series for each GPU.
	"vgpud_vm_busy_ratio": func(v *api.VM, _ model.Metric, x float64) { v.BusyRatio += x },
	"vgpud_vm_budget_info": func(v *api.VM, m model.Metric, _ float64) {
		var p quota.Period
		if p.UnmarshalText([]byte(m["period"])) == nil { // a later daemon's is shown as a day's
			budgetOf(v).Budget.Period = p
		}
	},
	"vgpud_vm_budget_used_seconds": func(v *api.VM, _ model.Metric, x float64) { budgetOf(v).Used = duration(x) },
	"vgpud_vm_budget_soft_seconds": func(v *api.VM, _ model.Metric, x float64) { budgetOf(v).Budget.Soft = duration(x) },
	"vgpud_vm_budget_hard_seconds": func(v *api.VM, _ model.Metric, x float64) { budgetOf(v).Budget.Hard = duration(x) },
}

// budgetOf returns a guest's budget, which it makes if there is none.
func budgetOf(v *api.VM) *budget.Status {
	if v.Budget == nil {
		v.Budget = new(budget.Status)
	}
	return v.Budget
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
