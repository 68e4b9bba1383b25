package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/ability"
	"vgpud/cmd/internal/checks"
	"vgpud/mediator/api"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/agent"
	"vgpud/mediator/nova/placement"
)

// errNotReady is the result of `doctor` if instances can't have GPUs here. The table has said why.
var errNotReady = errors.New("instances can't have GPUs here yet: see the entries marked needed above")

func newDoctor(o *options) *cobra.Command {
	return checks.NewCommand(checks.Doctor{
		Short: "Check what is between this host and Placement, and say what to do",
		Long: `Check the configuration, the daemon, Keystone, Placement, the compute node, and what Placement has
of each GPU. It changes nothing. The exit status is 1 if something is missing without which
instances can't have GPUs here.`,
		Examine:  func(ctx context.Context) []ability.Ability { return examine(ctx, o) },
		NotReady: errNotReady,
	})
}

// examine checks one thing after the other, as long as the next can be checked.
func examine(ctx context.Context, o *options) []ability.Ability {
	n, err := o.connect()
	if err != nil {
		return []ability.Ability{checks.Needed(ability.Missing("configuration", err.Error(), "write "+o.config+" as docs/placement.md says"))}
	}
	defer n.close()
	all := []ability.Ability{checks.Needed(ability.Available("configuration", "%s", o.config))}
	all = append(all, secretFiles(n.config)...)
	health, err := n.daemon.Health(ctx)
	if err != nil {
		return append(all, checks.Needed(ability.Missing("daemon", err.Error(), "start vgpud: systemctl start vgpud")))
	}
	all = append(all, checks.Needed(ability.Available("daemon", "version %s", health.Version)))
	v, err := agent.Look(ctx, n.config, n.placement, n.daemon)
	if err != nil {
		return append(all, checks.Needed(ability.Missing("Placement", err.Error(), "")))
	}
	all = append(all, checks.Needed(ability.Available("Placement", "compute node %s, %s", v.Host.Name, v.Host.Node)))
	all = append(all, providers(v)...)
	return append(all, orphans(ctx, n, v)...)
}

// secretFiles checks that nobody else reads the secret.
func secretFiles(c placement.Config) (all []ability.Ability) {
	for _, path := range []string{c.Keystone.PasswordFile, c.Keystone.SecretFile} {
		if path == "" {
			continue
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			all = append(all, ability.Undetermined("credential", err.Error(), "run this as root, or as the service's user"))
		case st.Mode().Perm()&0o007 != 0:
			all = append(all, ability.Missing("credential", fmt.Sprintf("%s may be read by everybody (mode %04o)", path, st.Mode().Perm()), "chmod o= "+path))
		default:
			all = append(all, ability.Available("credential", "%s", path))
		}
	}
	return all
}

// providers checks what Placement has of each GPU.
func providers(v agent.Preview) (all []ability.Ability) {
	pending := make(map[string][]string)
	for _, r := range v.Requests {
		pending[r.GPU] = append(pending[r.GPU], r.Kind.String())
	}
	for _, o := range v.Offers {
		var a ability.Ability
		if requests := pending[o.GPU]; len(requests) > 0 {
			a = ability.Missing("provider", "Placement has something else of it: "+strings.Join(requests, ", "), "start the agent: systemctl start vgpu-placement; its log says what keeps it from that")
		} else {
			a = ability.Available("provider", "%s", strings.TrimPrefix(o.String(), o.GPU+": "))
		}
		all = append(all, checks.OfGPU(o.GPU, a))
	}
	if len(v.Offers) == 0 {
		all = append(all, checks.Needed(ability.Missing("provider", "vgpud has no GPU", "name the host's GPUs in vgpud.yaml")))
	}
	return all
}

// orphans checks that each guest of Nova's has an allocation on its GPU: what is left behind takes
// from what Placement promises others.
func orphans(ctx context.Context, n *connection, v agent.Preview) (all []ability.Ability) {
	vms, err := n.daemon.VMs(ctx)
	if err != nil {
		return []ability.Ability{ability.Undetermined("instances", err.Error(), "")}
	}
	consumers := make(map[string][]string)
	guests := 0
	for _, vm := range vms {
		if vm.Engine != nova.EngineNova {
			continue
		}
		guests++
		who, asked := consumers[vm.GPU]
		if !asked {
			who, err = n.placement.Consumers(ctx, nova.ProviderUUID(v.Host.Node, vm.GPU))
			if err != nil && !errors.Is(err, placement.ErrNotFound) {
				return []ability.Ability{ability.Undetermined("instances", err.Error(), "")}
			}
			consumers[vm.GPU] = who
		}
		if !slices.Contains(who, vm.DomainUUID) {
			all = append(all, orphan(vm))
		}
	}
	if len(all) == 0 {
		all = append(all, ability.Available("instances", "%d with a virtual GPU, each with an allocation", guests))
	}
	return all
}

func orphan(vm api.VM) ability.Ability {
	return checks.OfGPU(vm.GPU, ability.Missing("instances", fmt.Sprintf("%s (instance %s) has a virtual GPU but no allocation", vm.Name, vm.DomainUUID),
		fmt.Sprintf("see whether the instance is still there: openstack server show %s; if not, end its domain, or: vgpuctl delete vm %s", vm.DomainUUID, vm.Name)))
}
