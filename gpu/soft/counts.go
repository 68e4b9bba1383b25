package soft

import (
	"time"

	"vgpud/gpu"
)

var _ gpu.Counted = (*Device)(nil)

// Counts is a summary of the GPU's usage; [Device.Usage] has all of it.
func (d *Device) Counts() (gpu.Counts, error) {
	u, err := d.Usage()
	if err != nil {
		return gpu.Counts{}, err
	}
	c := gpu.Counts{Busy: make(map[string]time.Duration, len(u.Labels)), Overruns: u.Machine.Overruns, Overrun: u.Machine.Overrun}
	for _, l := range u.Labels {
		c.Busy[l.Label] = l.Busy
	}
	return c, nil
}
