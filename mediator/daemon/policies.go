package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vgpud/mediator/statefile"
)

// keptPolicy is what a daemon notes for the next one of a policy that was set by the API.
type keptPolicy struct {
	Policy string `json:"policy"`
	// Configured is what the configuration said then. Where it says something else, that
	// holds.
	Configured string `json:"configured"`
}

// policyFile is where a GPU's policy is noted, in a directory that is made with the first.
func (s *Service) policyFile(gpu string) string {
	return filepath.Join(s.runDir(), "gpus", gpu+".json")
}

// configured is the policy that the configuration names for a GPU.
func (s *Service) configured(gpu string) string {
	for _, g := range s.config.Load().GPUs {
		if g.Name == gpu {
			return g.Policy
		}
	}
	return ""
}

// keepPolicy notes a GPU's policy for the next daemon.
func (s *Service) keepPolicy(gpu, policy string) error {
	path := s.policyFile(gpu)
	b, err := json.Marshal(keptPolicy{Policy: policy, Configured: s.configured(gpu)})
	if err != nil {
		return fmt.Errorf("note a GPU's policy: %w", err)
	}
	switch err := os.Mkdir(filepath.Dir(path), 0o700); {
	case err == nil:
		if err := s.o.Files.SyncDir(s.runDir()); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return &statefile.Error{Path: path, Err: err}
	}
	return s.o.Files.Write(path, b)
}

// updatePolicy has a GPU shared by another policy, once the next daemon will know it.
func (s *Service) updatePolicy(sh *share, policy string) error {
	if err := checkPolicy(policy); err != nil {
		return err
	}
	s.reloads.Lock()
	defer s.reloads.Unlock()
	err := s.keepPolicy(sh.config.Name, policy)
	if err == nil {
		err = sh.setPolicy(policy)
	}
	if err != nil {
		if berr := s.keepPolicy(sh.config.Name, sh.policyIs()); berr != nil {
			s.log.Debug("note again which policy a GPU has", "gpu", sh.config.Name, "err", berr)
		}
		return s.notKept(err)
	}
	sh.changed(0)
	return nil
}

// policyIs is the policy by which the GPU is shared.
func (s *share) policyIs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policyName
}

// configurePolicy has a GPU shared by another policy that the configuration names, whatever
// was set before. The caller holds reloads.
func (s *Service) configurePolicy(sh *share, policy string) error {
	if err := checkPolicy(policy); err != nil {
		return err
	}
	if err := s.o.Files.Remove(s.policyFile(sh.config.Name)); err != nil {
		return s.notKept(err)
	}
	if err := sh.setPolicy(policy); err != nil {
		return err
	}
	sh.changed(0)
	return nil
}

// recallPolicies has GPUs shared as the API last said, unless the configuration says since
// what it did not say then.
func (s *Service) recallPolicies() {
	for _, sh := range s.shares {
		name := sh.config.Name
		k, err := readPolicy(s.policyFile(name))
		switch {
		case err != nil || k == nil:
		case k.Configured == s.configured(name):
			err = sh.setPolicy(k.Policy)
		default:
			err = s.o.Files.Remove(s.policyFile(name))
		}
		if err != nil {
			s.log.Warn("GPU goes on with the policy that is configured", "gpu", name, "err", err)
		}
	}
}

// readPolicy is what the last daemon noted, nil where there is nothing.
func readPolicy(path string) (*keptPolicy, error) {
	b, err := statefile.Read(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var k keptPolicy
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was noted of a GPU's policy: %w", err)
	}
	return &k, nil
}
