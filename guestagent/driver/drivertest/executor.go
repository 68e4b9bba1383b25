package drivertest

import (
	"errors"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// statusOf returns the status in an error.
func statusOf(err error) abi.Status {
	var s abi.Status
	if errors.As(err, &s) {
		return s
	}
	return abi.StatusInternal
}

// Rings is one channel from the executor's side.
type Rings struct {
	Shared     []byte // BAR2
	Page       []byte
	Submission []byte
	Completion []byte
	Wake       <-chan struct{} // receives doorbells
	Stop       <-chan struct{}
	Interrupt  func()
	PollWindow time.Duration
}

// Serve executes a channel's commands until Stop, or until the guest corrupts its rings; then it
// returns the error code.
func (g *GPU) Serve(r Rings) abi.ErrorCode {
	reader, err := abi.NewSubmissionReader(r.Page, r.Submission)
	if err == nil {
		var writer *abi.CompletionWriter
		if writer, err = abi.NewCompletionWriter(r.Page, r.Completion); err == nil {
			err = g.serve(&r, reader, writer)
		}
	}
	var code abi.ErrorCode
	if err != nil && !errors.As(err, &code) {
		return abi.ErrorInternal
	}
	return code
}

func (g *GPU) serve(r *Rings, reader *abi.SubmissionReader, writer *abi.CompletionWriter) error {
	buf := make([]abi.Entry, 256)
	var c abi.Completion
	for {
		n, err := reader.Fetch(buf)
		if err != nil {
			return err
		}
		if n == 0 {
			if !r.idle(reader) {
				return nil
			}
			continue
		}
		for i := 0; i < n; {
			span := abi.Span(&buf[i])
			g.execute(r.Shared, buf[i:i+span], &c)
			i += span
			c.Seq++
			for {
				slot, err := writer.Next()
				if err != nil {
					return err
				}
				if slot != nil {
					c.Encode(slot)
					break
				}
				r.publish(writer)
				if writer.ArmRoom() && !r.sleep() {
					return nil
				}
			}
		}
		r.publish(writer)
	}
}

func (r *Rings) publish(w *abi.CompletionWriter) {
	if w.Publish() && r.Interrupt != nil {
		r.Interrupt()
	}
}

// idle polls for the window, then sleeps; it returns false to stop.
func (r *Rings) idle(reader *abi.SubmissionReader) bool {
	for begin := time.Now(); time.Since(begin) < r.PollWindow; {
		for range 64 {
			if n, err := reader.Pending(); n > 0 || err != nil {
				return true
			}
		}
		select {
		case <-r.Stop:
			return false
		default:
		}
	}
	return !reader.Arm() || r.sleep()
}

func (r *Rings) sleep() bool {
	select {
	case <-r.Wake:
		return true
	case <-r.Stop:
		return false
	}
}
