package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
)

// SocketVariable is the environment variable that names the vfio-user socket of a virtual GPU, for
// a guest that is no VM. A program with more rights than its user ignores it.
const SocketVariable = "VGPU_VFIO_USER"

// AgentVariable names the agent's socket, if it is not at its usual place.
const AgentVariable = "VGPU_AGENT"

// OpenBus opens the virtual GPU that a program is to use: that of the socket in [SocketVariable], or
// a part of the one that the agent shares, or the PCI function itself. getenv reads the environment.
func OpenBus(ctx context.Context, getenv func(string) string) (driver.Bus, error) {
	if path := getenv(SocketVariable); path != "" {
		return driver.DialVFIOUser(ctx, path)
	}
	agent := allot.DefaultSocket
	if path := getenv(AgentVariable); path != "" {
		agent = path
	}
	if _, err := os.Stat(agent); err == nil {
		return openPart(ctx, agent)
	}
	bus, err := driver.OpenPCI(ctx, driver.PCI{}, "")
	if err != nil {
		return nil, fmt.Errorf("no agent at %s, and %w", agent, err)
	}
	return bus, nil
}

// openPart asks the agent for a part of the device: one that suits most programs, or less if others
// have too much of it.
func openPart(ctx context.Context, socket string) (driver.Bus, error) {
	var errs error
	for _, ask := range []allot.Ask{{Contexts: 4, Channels: 16}, {Contexts: 2, Channels: 8}, {Contexts: 1, Channels: 8}, {Contexts: 1, Channels: 4}, {Contexts: 1, Channels: 2}} {
		bus, err := driver.DialAgent(ctx, driver.AgentOptions{Socket: socket, Ask: ask})
		if err == nil {
			return bus, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// preemption returns how the kernels of a process's contexts are made preemptible: as the agent says
// where it shares the virtual GPU, or else by measured cost, unless the environment turns that off.
func preemption(bus driver.Bus, getenv func(string) string) *driver.PreemptOptions {
	if _, agent := bus.(interface{ Preempt() *driver.PreemptOptions }); agent {
		return nil
	}
	return &driver.PreemptOptions{Off: strings.EqualFold(getenv(driver.PreemptVariable), "off")}
}
