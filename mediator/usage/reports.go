package usage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errNotOpen means that the record can't be read.
var errNotOpen = errors.New("the usage record can't be read")

// Report answers a query, with what guests have used up to now.
func (r *Recorder) Report(ctx context.Context, q Query) (Report, error) {
	step := int64(0)
	if q.By == ByDay {
		step = day
	}
	parts, from, to, err := r.parts(ctx, q, step, q.By != ByDay)
	if err != nil {
		return Report{}, err
	}
	rep := Report{From: from, To: to, By: q.By}
	rep.Rows, rep.Total = group(q.By, parts)
	return rep, nil
}

// GPUTime returns the compute time of the subjects that a query means, as budgets need it.
func (r *Recorder) GPUTime(ctx context.Context, q Query) (time.Duration, error) {
	rep, err := r.Report(ctx, q)
	return rep.Total.GPUTime(), err
}

// Costs returns what a query's guests cost, as a custom cost plugin of OpenCost does, in windows of
// a day or, if hourly, an hour.
func (r *Recorder) Costs(ctx context.Context, q Query, hourly bool, host string, p Price) ([]CostResponse, error) {
	step := int64(day)
	if hourly {
		step = hour
	}
	q.From, q.To = time.Unix(floor(q.From.Unix(), step), 0), time.Unix(ceil(q.To.Unix(), step), 0)
	parts, _, _, err := r.parts(ctx, q, step, true)
	if err != nil {
		return nil, err
	}
	return export(merge(parts), step, host, p), nil
}

// parts returns the sums of a query, and the time that they cover.
func (r *Recorder) parts(ctx context.Context, q Query, step int64, bySubject bool) (parts []part, from, to time.Time, err error) {
	r.mu.Lock()
	stale := r.o.Clock.Now()-r.sampled > freshFor
	r.mu.Unlock()
	if stale {
		r.round()
	}
	s := r.current()
	if s == nil {
		return nil, from, to, fmt.Errorf("%w: %s", errNotOpen, r.o.Path)
	}
	removed, err := s.removed(ctx)
	if err != nil {
		return nil, from, to, r.readFailed(s, err)
	}
	segments := plan(q.From.Unix(), q.To.Unix(), s.o.interval, removed, coarsest(step))
	if len(segments) == 0 {
		return nil, q.From, q.From, nil
	}
	for _, seg := range segments {
		some, err := s.scan(ctx, seg, step, bySubject, q.matches)
		if err != nil {
			return nil, from, to, r.readFailed(s, err)
		}
		parts = append(parts, some...)
	}
	return parts, time.Unix(segments[0].from, 0).UTC(), time.Unix(segments[len(segments)-1].to, 0).UTC(), nil
}

// readFailed returns the error of a query. A corrupt database is replaced.
func (r *Recorder) readFailed(s *store, err error) error {
	if isCorrupt(err) {
		r.writing.Lock()
		if r.current() == s {
			r.replaceCorrupt(s, err)
		}
		r.writing.Unlock()
	}
	return fmt.Errorf("%w: %s: %w", errNotOpen, r.o.Path, err)
}
