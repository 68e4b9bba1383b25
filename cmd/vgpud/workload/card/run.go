package card

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// Plan says what a card does.
type Plan struct {
	Number int           `json:"number"` // of the event kernel
	For    time.Duration `json:"for"`
	// Gap is the time from an event's answer to the next event; 0 keeps events under way all the time.
	Gap time.Duration `json:"gap"`
}

// Report says what became of the packets.
type Report struct {
	Events  int     `json:"events"`
	Packets uint64  `json:"packets"`
	P50     float64 `json:"p50_micros"`
	P99     float64 `json:"p99_micros"`
}

// reportOf summarises latencies.
func reportOf(latencies []time.Duration) Report {
	slices.Sort(latencies)
	r := Report{Events: len(latencies), Packets: uint64(len(latencies)) * Packets}
	if n := len(latencies); n > 0 {
		r.P50, r.P99 = micros(latencies[n/2]), micros(latencies[n*99/100])
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Play does what a plan says with the event area that this process was given. The error says which
// answer was wrong.
func Play(ctx context.Context, p Plan) (Report, error) {
	area, err := Inherited()
	if err != nil {
		return Report{}, err
	}
	c, err := New(area, p.Number, func() { KickHost(area) })
	if errors.Is(err, eventqueue.ErrRinging) {
		KickHost(area)
	}
	if err != nil {
		return Report{}, err
	}
	c.Keep = true
	next := time.Now()
	for end := next.Add(p.For); time.Now().Before(end) || c.Flying() > 0; {
		now := time.Now()
		more := now.Before(end) && (p.Gap == 0 || c.Flying() == 0 && !now.Before(next))
		did, err := c.Step(more)
		switch {
		case err != nil:
			return Report{}, err
		case ctx.Err() != nil:
			return Report{}, context.Cause(ctx)
		case did:
			next = now.Add(p.Gap)
		case c.Flying() == 0 && p.Gap > 0:
			timer := time.NewTimer(time.Until(next)) // until it is time for the next
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		default:
			runtime.Gosched()
		}
	}
	return reportOf(c.Latencies), nil
}

// Serve is the guest's program for a card: it registers the kernel in a context of the device at
// socket, says its number, and waits until in ends.
func Serve(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	return withContext(ctx, socket, func(c *driver.Context) error {
		k, err := Register(ctx, c)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(Plan{Number: k.Number()}); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
		return k.Close(ctx)
	})
}

// Commands answers packets without event kernels, as a program must: each group of packets is copied,
// launched for by a command and copied back, and the next begins gap after its answer.
func Commands(ctx context.Context, socket string, d, gap time.Duration) (r Report, err error) {
	err = withContext(ctx, socket, func(c *driver.Context) error {
		ping, ok := corpus.ByName("ping")
		if !ok {
			return errors.New("the corpus has no ping")
		}
		m, err := c.LoadModule(ctx, []byte(ping.PTX(corpus.SM80)))
		if err != nil {
			return err
		}
		f, err := m.Function(ctx, "udp_ping")
		if err != nil {
			return err
		}
		at, err := c.Alloc(ctx, eventBytes)
		if err != nil {
			return err
		}
		card := &Card{room: make([]byte, Entries*eventBytes)}
		packets := card.room[:eventBytes]
		var latencies []time.Duration
		for end := time.Now().Add(d); time.Now().Before(end); {
			card.fill(0)
			began := time.Now()
			if _, err := c.Own().CopyIn(ctx, at, packets); err != nil {
				return err
			}
			if _, err := c.Own().Launch(ctx, f, driver.Dim{}, driver.Dim{X: Packets}, 0, at, at+Packets*slotBytes, uint32(Packets)); err != nil {
				return err
			}
			if err := c.Own().CopyOut(ctx, packets, at); err != nil {
				return err
			}
			latencies = append(latencies, time.Since(began))
			if err := card.check(0); err != nil {
				return err
			}
			timer := time.NewTimer(gap)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return context.Cause(ctx)
			}
		}
		r = reportOf(latencies)
		return nil
	})
	return r, err
}

// withContext calls f with a context of the virtual GPU at socket.
func withContext(ctx context.Context, socket string, f func(*driver.Context) error) (err error) {
	bus, err := driver.DialVFIOUser(ctx, socket)
	if err != nil {
		return err
	}
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	c, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		return fmt.Errorf("make a context: %w", err)
	}
	return f(c)
}
