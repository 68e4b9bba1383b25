package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"vgpud/clock"
	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// launches is how many launches of each kind BenchmarkLaunch measures.
const launches = 1000

// BenchmarkLaunch measures the parts of launches of an empty kernel, in a VM and by our own client
// on the host, and prints a table.
func BenchmarkLaunch(b *testing.B) {
	h := withTimeout(host.Start(b, "dfq"))
	client, inVM := h.NewVM(api.VMSpec{Name: "client"}), h.NewVM(api.VMSpec{Name: "vm"})
	m := boot(b, h, qemu.Options{}, inVM)
	m.ready()
	for b.Loop() {
		var out bytes.Buffer
		if err := workload.Run(b.Context(), workload.Plan{Name: "client", Socket: client.Socket, Measure: launches}, &out); err != nil {
			b.Fatal(err)
		}
		reports := []workload.LatencyReport{latencies(b, out.Bytes()), m.latencies()}
		printLatencies(b, []string{"client", "VM"}, reports)
		for i, name := range []string{"client", "vm"} {
			for j, way := range []string{"polled", "interrupt", "kick", "asleep"} {
				b.ReportMetric(1e6*reports[i].Ways[j].Total, name+"-"+way+"-p50-µs")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// latencies measures launches in the VM.
func (m *machine) latencies() workload.LatencyReport {
	m.tb.Helper()
	plan, err := json.Marshal(workload.Plan{Name: "vm", Agent: true, Measure: launches})
	if err != nil {
		m.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.tb.Context(), 5*time.Minute)
	defer cancel()
	p, err := m.vm.Run(ctx, qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan})
	if err != nil {
		m.tb.Fatal(err)
	}
	var text []byte
	for line := range p.Lines() {
		text = append(text, line...)
	}
	if err := p.Wait(); err != nil {
		m.tb.Fatal(err)
	}
	return latencies(m.tb, text)
}

func latencies(tb testing.TB, text []byte) workload.LatencyReport {
	tb.Helper()
	var r workload.LatencyReport
	if err := json.Unmarshal(text, &r); err != nil {
		tb.Fatalf("report %q: %v", text, err)
	}
	return r
}

func printLatencies(tb testing.TB, names []string, reports []workload.LatencyReport) {
	tb.Helper()
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nµs\tp50\tp99\tstore\tdoorbell\tfetch\texecute\tinterrupt\treturn\tclocks ±\tdoorbells\tinterrupts\t")
	for i, r := range reports {
		for _, w := range r.Ways {
			fmt.Fprintf(t, "%s: %s\t", names[i], w.Way)
			for _, s := range []float64{w.Total, w.Total99, w.Store, w.Doorbell, w.Fetch, w.Execute, w.Interrupt, w.Return, w.Clocks} {
				fmt.Fprintf(t, "%.1f\t", 1e6*s)
			}
			fmt.Fprintf(t, "%.0f%%\t%.0f%%\t\n", 100*w.Doorbells, 100*w.Interrupts)
		}
	}
	if err := t.Flush(); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkIdle measures the processor time that idle VMs take on the host, in parts of one
// processor for each: with only their agent, and with a program that has a context and does
// nothing. It prints a table.
func BenchmarkIdle(b *testing.B) {
	h := withTimeout(host.Start(b, "dfq"))
	var machines []*machine
	names := []string{"one", "two"}
	for _, name := range names {
		machines = append(machines, boot(b, h, qemu.Options{}, h.NewVM(api.VMSpec{Name: name})))
	}
	for _, m := range machines {
		m.ready()
	}
	for b.Loop() {
		// Work that remains from booting and the agent's check ends soon.
		if err := clock.Sleep(b.Context(), clock.Real{}, 5*time.Second); err != nil {
			b.Fatal(err)
		}
		t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "\npart of a processor for each of two VMs\tvgpud vm, exec\tQEMU\tdaemon, in all\tGPU, in all")
		idle(b, t, h, machines, names, "their agents alone")
		var workers []*worker
		for i, m := range machines {
			workers = append(workers, m.run(workload.Plan{Name: names[i], Idle: true}))
		}
		idle(b, t, h, machines, names, "an idle context")
		for _, w := range workers {
			w.end()
		}
		if err := t.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// idle measures and prints a line.
func idle(b *testing.B, t *tabwriter.Writer, h *host.Host, machines []*machine, names []string, what string) {
	b.Helper()
	const length = 10 * time.Second
	of := func() (guests, qemus, daemon, gpu time.Duration) {
		sum := func(pids ...int) (all time.Duration) {
			for _, pid := range pids {
				d, err := proc.CPUTime(pid)
				if err != nil {
					b.Fatal(err)
				}
				all += d
			}
			return all
		}
		for i, m := range machines {
			pid := h.VM(names[i]).PID
			executors, err := proc.Children(pid)
			if err != nil {
				b.Fatal(err)
			}
			guests += sum(append(executors, pid)...)
			qemus += sum(m.vm.PID())
		}
		return guests, qemus, sum(h.Daemon.PID()), sum(h.GPU.PID())
	}
	// A guest counts as active for a second after its work.
	if err := clock.Sleep(b.Context(), clock.Real{}, 2*time.Second); err != nil {
		b.Fatal(err)
	}
	g0, q0, d0, p0 := of()
	begin := time.Now()
	if err := clock.Sleep(b.Context(), clock.Real{}, length); err != nil {
		b.Fatal(err)
	}
	g1, q1, d1, p1 := of()
	took := time.Since(begin)
	part := func(d time.Duration, n int) float64 { return 100 * d.Seconds() / took.Seconds() / float64(n) }
	n := len(machines)
	fmt.Fprintf(t, "%s\t%.2f%%\t%.2f%%\t%.2f%%\t%.2f%%\n", what, part(g1-g0, n), part(q1-q0, n), part(d1-d0, 1), part(p1-p0, 1))
}
