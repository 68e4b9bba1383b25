package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"vgpud/mediator/api"
	"vgpud/mediator/statefile"
)

// saved is the agent's file.
type saved struct {
	// Node is the compute node, and Former are earlier ones under which providers of ours may remain.
	Node   string   `json:"node"`
	Former []string `json:"former,omitempty"`
	// Machine is where this was written: the providers that it leads to are of no other.
	Machine string `json:"machine,omitempty"`
}

const (
	maxSaved  = 64 << 10
	maxFormer = 8
)

func (a *Agent) path() string { return filepath.Join(a.o.Config.StateDir, "agent.json") }

// load reads the file, once. One that can't be read is not worth refusing to work: all that it has
// is where else to clear up.
func (a *Agent) load() error {
	if a.loaded {
		return nil
	}
	a.loaded = true
	b, err := statefile.Read(a.path(), maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var k saved
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		a.o.Log.Warn("it is not known under which compute nodes this host's GPUs were before: look for resource providers whose hosts are gone", "err", err)
		return nil
	}
	if k.Machine != a.o.Machine {
		a.o.Log.Warn("what the agent saved is of another machine, and not used", "file", a.path())
		return nil
	}
	for _, id := range append(k.Former, k.Node) {
		if api.CheckUUID(id) == nil && !slices.Contains(a.former, id) && len(a.former) < maxFormer {
			a.former = append(a.former, id)
		}
	}
	return nil
}

// save writes the file.
func (a *Agent) save() error {
	b, err := json.Marshal(saved{a.current, a.former, a.o.Machine})
	if err != nil {
		return fmt.Errorf("save the compute node: %w", err)
	}
	return statefile.Files{}.Write(a.path(), b)
}
