package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"text/tabwriter"
	"time"

	"vgpud/cmd/internal/eventarea"
	"vgpud/cmd/vgpud/workload"
	"vgpud/cmd/vgpud/workload/card"
	"vgpud/mediator/api"
)

// packetGap is the time from an answer to the next packets, where they come one by one: longer than a
// kernel without events stays on the GPU.
const packetGap = 12 * time.Millisecond

// cardName is the name of the guest with the card.
const cardName = "card"

// EventsResult is the outcome of the demo of event kernels: a card's packets beside a batch guest.
type EventsResult struct {
	Ways []EventsWay `json:"ways"`
}

// EventsWay is one way to have packets answered.
type EventsWay struct {
	Way string `json:"way"`
	card.Report
	// BatchKernels is how many kernels the guest beside it ended in a second, and Resident the part of
	// the time that the card's guest had the GPU.
	BatchKernels float64 `json:"batch_kernels_per_second"`
	Resident     float64 `json:"gpu_ratio"`
}

// eventWays are the ways, with what they mean.
var eventWays = []struct{ name, what string }{
	{"drained", "each event is a launch of a program, behind what executes"},
	{"parked", "each event is a store that wakes its kernel"},
	{"resident", "events come all the time: each is a store alone"},
}

// runEvents measures all ways.
func (d *demo) runEvents(ctx context.Context) (*EventsResult, error) {
	batch := &guest{weight: 1, Plan: workload.Batch(), ready: make(chan struct{})}
	d.guests = []*guest{batch}
	if err := d.startGuests(ctx); err != nil {
		return nil, err
	}
	v, err := d.client.CreateVM(ctx, api.VMSpec{Name: cardName, Weight: 1, BAR2Bytes: 64 << 20})
	if err != nil {
		return nil, err
	}
	policy := "dfq"
	if _, err := d.client.UpdateGPU(ctx, gpuName, api.GPUUpdate{Policy: &policy}); err != nil {
		return nil, err
	}
	var r EventsResult
	for _, w := range eventWays {
		if err := d.progress("%s: %s", w.name, w.what); err != nil {
			return nil, err
		}
		one, err := d.measureEvents(ctx, w.name, v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		r.Ways = append(r.Ways, one)
	}
	return &r, nil
}

// measureEvents measures one way.
func (d *demo) measureEvents(ctx context.Context, way string, v api.VM) (r EventsWay, err error) {
	r.Way = way
	begin, err := d.snapshot(ctx)
	if err != nil {
		return r, err
	}
	switch way {
	case "drained":
		err = d.packets(&r.Report, "demo-packets", v.Socket, d.o.Duration.String(), packetGap.String())
	case "parked":
		r.Report, err = d.withCard(ctx, v, card.Plan{For: d.o.Duration, Gap: packetGap})
	default:
		r.Report, err = d.withCard(ctx, v, card.Plan{For: d.o.Duration})
	}
	if err != nil {
		return r, err
	}
	end, err := d.snapshot(ctx)
	if err != nil {
		return r, err
	}
	seconds := end.at.Sub(begin.at).Seconds()
	batch := d.guests[0].Name
	r.BatchKernels = float64(end.vms[batch].Kernels-begin.vms[batch].Kernels) / seconds
	r.Resident = (end.vms[cardName].GPUSeconds - begin.vms[cardName].GPUSeconds) / seconds
	return r, nil
}

// withCard has the guest's program register the kernel, and a card launch it.
func (d *demo) withCard(ctx context.Context, v api.VM, p card.Plan) (r card.Report, err error) {
	cmd, err := d.o.Program("demo-events", v.Socket)
	if err != nil {
		return r, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	said, w, err := os.Pipe()
	if err != nil {
		return r, err
	}
	cmd.Stdout = w
	program, err := d.start("card-guest", cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return r, errors.Join(err, said.Close())
	}
	defer func() {
		err = errors.Join(err, stdin.Close(), said.Close())
		select {
		case <-program.ended():
		case <-ctx.Done():
		}
	}()
	var first card.Plan
	line, err := bufio.NewReader(said).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &first)
	}
	if err != nil {
		return r, fmt.Errorf("the guest's program: %w", errors.Join(err, program.endError()))
	}
	p.Number = first.Number
	area, err := eventarea.Open(v.PID)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, area.Close()) }()
	text, err := json.Marshal(p)
	if err != nil {
		return r, err
	}
	return r, d.packetsOf(&r, func(cmd *exec.Cmd) { eventarea.Give(cmd, area) }, "demo-card", string(text))
}

// packets runs a process of this program that answers packets, and reads its report.
func (d *demo) packets(r *card.Report, args ...string) error {
	return d.packetsOf(r, func(*exec.Cmd) {}, args...)
}

func (d *demo) packetsOf(r *card.Report, prepare func(*exec.Cmd), args ...string) error {
	cmd, err := d.o.Program(args...)
	if err != nil {
		return err
	}
	prepare(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, d.o.Progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return json.Unmarshal(out.Bytes(), r)
}

// err returns an error if a way has no answers. A wrong answer has ended the demo.
func (r *EventsResult) err() error {
	var errs []error
	for _, w := range r.Ways {
		if w.Events == 0 {
			errs = append(errs, fmt.Errorf("%s: no packet was answered", w.Way))
		}
	}
	return errors.Join(errs...)
}

// print writes the result as text.
func (r *EventsResult) print(w io.Writer) error {
	if _, err := fmt.Fprintln(w, "\na card's packets beside a batch guest, 32 an event; every answer was checked"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "WAY\tEVENTS\tPACKETS\tP50-US\tP99-US\tGPU\tBATCH-KERNELS/S\t\n")
	for _, e := range r.Ways {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f\t%.0f\t%.1f%%\t%.1f\t\n", e.Way, e.Events, e.Packets, e.P50, e.P99, 100*e.Resident, e.BatchKernels)
	}
	return t.Flush()
}
