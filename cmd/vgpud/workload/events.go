package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"vgpud/cmd/vgpud/workload/card"
	"vgpud/guestagent/driver"
)

// Events asks for launches of event kernels. Without Card the program registers the corpus's UDP ping
// twice, launches the first itself, reports, and leaves the second to a card until the plan ends.
type Events struct {
	// Launch is how many events the process launches; each answer is checked.
	Launch int `json:"launch"`
	// Card is the number of the event kernel that the process launches as a card, with nothing but the
	// event area that it was given.
	Card *int `json:"card,omitempty"`
}

// EventsReport is the result: a line of JSON.
type EventsReport struct {
	// Packets were answered, all of them right.
	Packets uint64 `json:"packets"`
	// Number is that of the event kernel that is left to a card.
	Number int `json:"number"`
}

// serve is the program with a context.
func (e *Events) serve(ctx context.Context, gpu *driver.Context, out io.Writer) error {
	own, err := card.Register(ctx, gpu)
	if err != nil {
		return err
	}
	other, err := card.Register(ctx, gpu)
	if err != nil {
		return err
	}
	area, err := gpu.Device().Events()
	if err != nil {
		return err
	}
	var kickErr error
	c, err := card.New(area, own.Number(), func() {
		if err := gpu.Device().KickEvents(own.Number()); err != nil && kickErr == nil {
			kickErr = err
		}
	})
	if err == nil {
		err = c.Run(ctx, e.Launch)
	}
	if err != nil {
		return err
	}
	if kickErr != nil {
		return kickErr
	}
	if err := reportEvents(out, EventsReport{Packets: c.Answered(), Number: other.Number()}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// play is the card.
func (e *Events) play(ctx context.Context, out io.Writer) error {
	area, err := card.Inherited()
	if err != nil {
		return err
	}
	c, err := card.New(area, *e.Card, func() { card.KickHost(area) })
	if err == nil {
		err = c.Run(ctx, e.Launch)
	}
	if err != nil {
		return err
	}
	return reportEvents(out, EventsReport{Packets: c.Answered()})
}

func reportEvents(out io.Writer, r EventsReport) error {
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
