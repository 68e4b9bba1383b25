// Package mischief plays a hostile guest or VMM on a virtual GPU, over vfio-user: it writes garbage
// to rings and registers, floods doorbells, takes everything it can get, and disconnects at any
// time. Tests and measurements of the whole system run it in a process of its own, which they kill.
package mischief

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Modes returns the ways to misbehave, ordered.
func Modes() []string {
	return slices.Concat(slices.Sorted(maps.Keys(guestMischief)), slices.Sorted(maps.Keys(deviceMischief)), slices.Sorted(maps.Keys(vmmMischief)))
}

// Do misbehaves on the virtual GPU behind a socket until that fails, which may never happen. It
// calls begun one or more times after it has misbehaved at least once.
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
