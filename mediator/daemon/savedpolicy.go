package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"vgpud/mediator/access"
	"vgpud/mediator/events"
	"vgpud/mediator/statefile"
)

// savedPolicy is what a daemon saves for the next one, also after a reboot of the host, about a policy
// that was set over the API.
type savedPolicy struct {
	Policy string `json:"policy"`
	// Configured is the configured policy at that time. If the configuration names another one
	// since, that holds.
	Configured string `json:"configured"`
}

// policyFile returns the file of a GPU's saved policy.
func (s *Service) policyFile(gpu string) string {
	return filepath.Join(s.stateDir(), "gpus", gpu+".json")
}

// earlierPolicyFile returns where daemons saved it that kept it until a reboot alone.
func (s *Service) earlierPolicyFile(gpu string) string {
	return filepath.Join(s.runDir(), "gpus", gpu+".json")
}

// configuredPolicy returns the policy that the configuration names for a GPU.
func (s *Service) configuredPolicy(gpu string) string {
	for _, g := range s.config.Load().GPUs {
		if g.Name == gpu {
			return g.Policy
		}
	}
	return ""
}

// savePolicy saves a GPU's policy for the next daemon.
func (s *Service) savePolicy(gpu, policy string) error {
	return s.saveGPUFile(s.policyFile(gpu), savedPolicy{Policy: policy, Configured: s.configuredPolicy(gpu)})
}

// updatePolicy changes a GPU's policy, once the next daemon will know it.
func (s *Service) updatePolicy(by access.Caller, d *device, policy string) error {
	if err := checkPolicy(policy); err != nil {
		return err
	}
	s.reloads.Lock()
	defer s.reloads.Unlock()
	was := d.loop.Policy()
	err := s.savePolicy(d.config.Name, policy)
	if err == nil {
		err = d.loop.SetPolicy(policy)
	}
	if err != nil {
		if rerr := s.savePolicy(d.config.Name, d.loop.Policy()); rerr != nil {
			s.log.Debug("save again which policy a GPU has", "gpu", d.config.Name, "err", rerr)
		}
		return s.notSaved(err)
	}
	if policy == was {
		return nil
	}
	d.loop.Changed(0)
	s.log.Info("policy changed", events.Kind(events.PolicyChanged), "gpu", d.config.Name, "policy", policy, "by", by)
	return nil
}

// configurePolicy changes a GPU's policy to another one that the configuration names, whatever was
// set before.
//
// Preconditions: s.reloads is held.
func (s *Service) configurePolicy(d *device, policy string) error {
	if err := checkPolicy(policy); err != nil {
		return err
	}
	if err := s.forgetPolicy(d.config.Name); err != nil {
		return s.notSaved(err)
	}
	if err := d.loop.SetPolicy(policy); err != nil {
		return err
	}
	d.loop.Changed(0)
	return nil
}

// forgetPolicy removes a GPU's saved policy.
func (s *Service) forgetPolicy(gpu string) error {
	return errors.Join(s.o.Files.Remove(s.policyFile(gpu)), s.o.Files.Remove(s.earlierPolicyFile(gpu)))
}

// restorePolicies gives GPUs the policies that were last set over the API, unless the configuration
// names another one since.
func (s *Service) restorePolicies() {
	for _, d := range s.devices {
		name := d.config.Name
		k, err := readPolicy(s.policyFile(name))
		if err == nil && k == nil {
			if k, err = readPolicy(s.earlierPolicyFile(name)); err == nil && k != nil {
				if err := errors.Join(s.saveGPUFile(s.policyFile(name), k), s.o.Files.Remove(s.earlierPolicyFile(name))); err != nil {
					s.log.Warn("GPU's policy may be forgotten at a reboot of the host", "gpu", name, "err", err)
				}
			}
		}
		switch {
		case err != nil || k == nil:
		case k.Configured == s.configuredPolicy(name):
			err = d.loop.SetPolicy(k.Policy)
		default:
			err = s.forgetPolicy(name)
		}
		if err != nil {
			s.log.Warn("GPU goes on with the policy that is configured", "gpu", name, "err", err)
		}
	}
}

// readPolicy returns what the last daemon saved, or nil if there is nothing.
func readPolicy(path string) (*savedPolicy, error) {
	b, err := statefile.Read(path, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k savedPolicy
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("read a GPU's saved policy: %w", err)
	}
	return &k, nil
}
