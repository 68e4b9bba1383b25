package api_test

import (
	"testing"

	"vgpud/mediator/api"
)

// TestVMOn: a guest's contexts are told apart by GPU, and one that does not answer counts where it may
// have some.
func TestVMOn(t *testing.T) {
	onGPUs := []api.OnGPU{{GPU: "gpu0"}, {GPU: "gpu1", Contexts: 2}}
	for what, c := range map[string]struct {
		vm       api.VM
		gpu      string
		contexts int
		there    bool
	}{
		"its own GPU":             {api.VM{GPU: "gpu0", Contexts: 3}, "gpu0", 3, true},
		"without a context":       {api.VM{GPU: "gpu0"}, "gpu0", 0, true},
		"another GPU":             {api.VM{GPU: "gpu0", Contexts: 3}, "gpu1", 0, false},
		"floats, not there":       {api.VM{GPU: "gpu0", Float: true, Contexts: 2, OnGPUs: onGPUs}, "gpu0", 0, false},
		"floats, there":           {api.VM{GPU: "gpu0", Float: true, Contexts: 2, OnGPUs: onGPUs}, "gpu1", 2, true},
		"floats elsewhere":        {api.VM{GPU: "gpu0", Float: true, Contexts: 2, OnGPUs: onGPUs}, "gpu2", 0, false},
		"silent":                  {api.VM{GPU: "gpu0", Silent: "stopped"}, "gpu0", 0, true},
		"silent, another GPU":     {api.VM{GPU: "gpu0", Silent: "stopped"}, "gpu1", 0, false},
		"silent, floats":          {api.VM{GPU: "gpu0", Float: true, Silent: "stopped", OnGPUs: []api.OnGPU{{GPU: "gpu1"}}}, "gpu1", 0, true},
		"silent, floats, not one": {api.VM{GPU: "gpu0", Float: true, Silent: "stopped", OnGPUs: []api.OnGPU{{GPU: "gpu1"}}}, "gpu2", 0, false},
	} {
		if contexts, there := c.vm.On(c.gpu); contexts != c.contexts || there != c.there {
			t.Errorf("%s: %d contexts, there %v; want %d, %v", what, contexts, there, c.contexts, c.there)
		}
	}
}
