package daemon

import (
	"fmt"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
)

// DefaultDisableAfter is how long a suspended guest's contexts may stay on the GPU by default. It
// is longer than most kernels, and than a kernel takes to leave that does so when told, and a few
// times as long as the driver takes to disable a context.
const DefaultDisableAfter = 2 * time.Millisecond

// DefaultUrgentPoll is how long in a wait an urgent guest's executor may poll by default.
const DefaultUrgentPoll = 5 * time.Millisecond

// The values of time_slices.
const (
	slicesAuto = "auto"
	slicesOff  = "off"
)

// busyWaitModes are the values of spin.
var busyWaitModes = map[string]scheduler.BusyWaitMode{
	"": scheduler.BusyWaitAuto, "auto": scheduler.BusyWaitAuto, "true": scheduler.BusyWaitAlways, "false": scheduler.BusyWaitNever,
}

// warmExecutors reports whether a value of warm_executors asks for spare executors on a GPU of a
// kind.
func warmExecutors(value, kind string) bool {
	return value == "true" || value != "false" && kind == kindNVIDIA
}

// checkControl returns what is wrong with how contexts are to be controlled, and launches to be
// waited for.
func (c *GPUConfig) checkControl() error {
	if c.TimeSlices != "" && c.TimeSlices != slicesAuto && c.TimeSlices != slicesOff {
		return fmt.Errorf("time_slices %q: want %s or %s", c.TimeSlices, slicesAuto, slicesOff)
	}
	if _, ok := busyWaitModes[c.BusyWait]; !ok {
		return fmt.Errorf("spin %q: want auto, true or false", c.BusyWait)
	}
	if !slices.Contains([]string{"", "auto", "true", "false"}, c.WarmExecutors) {
		return fmt.Errorf("warm_executors %q: want auto, true or false", c.WarmExecutors)
	}
	if c.SliceLoss != 0 && !(c.SliceLoss >= 0.002 && c.SliceLoss <= 0.2) {
		return fmt.Errorf("slice_loss %v: want 0.002 to 0.2", c.SliceLoss)
	}
	if d := time.Duration(c.UrgentPoll); d > ipc.MaxPollLimit {
		return fmt.Errorf("urgent_poll %v: want at most %v, or none", d, ipc.MaxPollLimit)
	}
	return checkWait("deep_after", c.DisableAfter)
}

// control returns how contexts are to be controlled.
func (c *GPUConfig) control() scheduler.Control {
	k := scheduler.Control{DisableAfter: DefaultDisableAfter}
	if c.DisableAfter != 0 {
		k.DisableAfter = max(time.Duration(c.DisableAfter), 0)
	}
	if c.TimeSlices != slicesOff {
		k.Slices = fairshare.SliceLimits{
			Loss: fairshare.DefaultSliceLoss, Switch: fairshare.DefaultSliceSwitch, Min: fairshare.DefaultMinSlice, Max: fairshare.DefaultMaxSlice,
		}
		if c.SliceLoss > 0 {
			k.Slices.Loss = c.SliceLoss
		}
	}
	return k
}

// busyWait returns how launches are to be waited for.
func (c *GPUConfig) busyWait() scheduler.BusyWait {
	b := scheduler.BusyWait{Mode: busyWaitModes[c.BusyWait], PollLimit: DefaultUrgentPoll}
	if c.UrgentPoll != 0 {
		b.PollLimit = max(time.Duration(c.UrgentPoll), 0)
	}
	return b
}
