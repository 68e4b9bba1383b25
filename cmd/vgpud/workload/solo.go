package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
)

// SoloReport is the time of kernels alone on the GPU: a line of JSON.
type SoloReport struct {
	// Seconds is for one launch of each of the plan's [Plan.Work], in order.
	Seconds []float64 `json:"seconds"`
}

// soloRounds is how many times a work's launches are timed; the median counts.
const soloRounds = 5

// measureSolo launches each work of the plan p.Solo times in a row and reports the time of one
// launch, which includes the GPU's gap between two launches. Results are checked.
func (p *Plan) measureSolo(ctx context.Context, gpu *driver.Context, out io.Writer) error {
	ch, err := gpu.NewChannel(ctx, driver.ChannelOptions{})
	if err != nil {
		return err
	}
	one := *p
	one.Workers = 1
	loads, err := one.workers(ctx, gpu)
	if err != nil {
		return err
	}
	var r SoloReport
	for _, l := range loads[0] {
		if !l.Repeatable() {
			return fmt.Errorf("%v: its results depend on how often it runs", l.Case)
		}
		rounds := make([]time.Duration, soloRounds)
		for i := range rounds {
			if rounds[i], err = l.solo(ctx, ch, p.Solo); err != nil {
				return err
			}
		}
		slices.Sort(rounds)
		r.Seconds = append(r.Seconds, rounds[soloRounds/2].Seconds())
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// solo returns the time of one launch of times consecutive ones. An extra first launch loads what
// the GPU has not seen yet.
func (l *Load) solo(ctx context.Context, ch *driver.Channel, times int) (time.Duration, error) {
	if err := l.launch(ctx, ch, times+1, noObserver{}); err != nil {
		return 0, err
	}
	err := l.Case.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return l.read(ctx, ch, b) })
	steps := len(l.Steps)
	_, begin := l.pending[steps-1].Times()
	_, end := l.pending[(times+1)*steps-1].Times()
	return (end - begin) / time.Duration(times), err
}
