// Package mischief is what a hostile guest or its VMM does to its virtual GPU, by vfio-user: it
// writes garbage to rings and registers, floods doorbells, takes all that it can get, and leaves
// in the middle. Tests and measurements of the whole do it in a process of its own, which they
// kill.
package mischief

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Modes returns the ways to misbehave, in order.
func Modes() []string {
	return slices.Concat(slices.Sorted(maps.Keys(guestMischief)), slices.Sorted(maps.Keys(deviceMischief)), slices.Sorted(maps.Keys(vmmMischief)))
}

// Do misbehaves on the virtual GPU behind a socket until that fails, which it may never do. It
// calls begun when it has done its worst at least once, perhaps more than once.
func Do(ctx context.Context, mode, socket string, begun func()) error {
	if vmm := vmmMischief[mode]; vmm != nil {
		return vmm(ctx, socket, begun)
	}
	do := guestMischief[mode]
	if do == nil {
		do = deviceMischief[mode]
	}
	if do == nil {
		return fmt.Errorf("no mischief %q: want one of %q", mode, Modes())
	}
	f, err := Attach(ctx, socket)
	if err != nil {
		return err
	}
	f.begun = begun
	return do(ctx, f)
}
