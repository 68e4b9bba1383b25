package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/api"
	"vgpud/mediator/budget"
	"vgpud/mediator/ipc"
)

// BudgetsConfig is the part of the configuration about budgets.
type BudgetsConfig struct {
	// TimeZone is the name of the time zone by whose calendar periods begin: UTC.
	TimeZone string `yaml:"time_zone,omitempty"`
	// Owners are owners' budgets, such as 100h/month,soft=80h: see quota.Parse. The GPU time of all
	// guests of an owner counts.
	Owners map[string]string `yaml:"owners,omitempty"`
}

// zone returns the time zone.
func (c *BudgetsConfig) zone() (*time.Location, error) {
	if c.TimeZone == "Local" {
		return nil, fmt.Errorf("time_zone %q: want a name such as UTC or Europe/Berlin", c.TimeZone)
	}
	z, err := time.LoadLocation(c.TimeZone) // "" is UTC
	if err != nil {
		return nil, fmt.Errorf("time_zone %q: want a name that the host knows, such as UTC or Europe/Berlin: %w", c.TimeZone, err)
	}
	return z, nil
}

// owners returns the owners' budgets.
func (c *BudgetsConfig) owners() (map[string]quota.Budget, error) {
	all := make(map[string]quota.Budget, len(c.Owners))
	for name, text := range c.Owners {
		if err := api.CheckAccount(name, ""); err != nil || name == "" {
			return nil, fmt.Errorf("owners: owner %q: want a name", name)
		}
		b, err := quota.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("owners.%s: %w", name, err)
		}
		all[name] = b
	}
	return all, nil
}

func (c *BudgetsConfig) check() error {
	if _, err := c.zone(); err != nil {
		return err
	}
	_, err := c.owners()
	return err
}

// budgetsFile is the name of the file, in Config.StateDir, with what was used of budgets.
const budgetsFile = "budgets.json"

// openLedger reads what was used of budgets.
func (s *Service) openLedger() error {
	c := &s.o.Config.Budgets
	zone, err := c.zone()
	if err != nil {
		return fmt.Errorf("budgets: %w", err)
	}
	owners, err := c.owners()
	if err != nil {
		return fmt.Errorf("budgets: %w", err)
	}
	dir := s.stateDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.log.Warn("what is used of budgets can't be saved", "err", err)
	}
	s.ledger = budget.Open(budget.Options{
		Path: filepath.Join(dir, budgetsFile), Files: s.o.Files, Log: s.log, Now: time.Now, Zone: zone,
	})
	s.ledger.SetOwners(owners)
	return nil
}

// budgetKey returns what a guest's budget is kept under: the same for each start of a domain, and
// for each guest of a name.
func budgetKey(spec *ipc.Spec) string {
	if spec.DomainUUID == "" {
		return spec.Name
	}
	return spec.DomainUUID + "/" + filepath.Base(spec.Socket)
}

// saveBudgets saves what was used of budgets for the next daemon.
func (s *Service) saveBudgets() {
	if err := s.ledger.Save(); err != nil {
		s.log.Warn("the next daemon may not know what was used of budgets", "err", err)
	}
}
