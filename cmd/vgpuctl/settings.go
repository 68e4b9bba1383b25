package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"vgpud/cmd/internal/cli"
	"vgpud/fairshare/quota"
	"vgpud/internal/nearest"
	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
)

// setting is a key of `vgpuctl set vm`.
type setting struct {
	key string
	// old is an earlier spelling, which is still understood.
	old string
	// like are values for completion.
	like  []string
	parse func(u *api.VMUpdate, value string) error
	// shown returns the setting's value if the update changes it, else "".
	shown func(u *api.VMUpdate, v *api.VM) string
}

// settings are spelled as the flags of create, define and attach.
var settings = []setting{
	{
		key: "weight", like: []string{"1", "2", "4"},
		parse: func(u *api.VMUpdate, s string) (err error) {
			u.Weight, err = parseNumber(s)
			return err
		},
		shown: func(u *api.VMUpdate, v *api.VM) string { return shownIf(u.Weight != nil, number(v.Weight)) },
	},
	partSetting("cap", func(u *api.VMUpdate) **float64 { return &u.Cap }, func(v *api.VM) float64 { return v.Cap }),
	partSetting("guarantee", func(u *api.VMUpdate) **float64 { return &u.Guarantee }, func(v *api.VM) float64 { return v.Guarantee }),
	{
		key: "priority", old: "priority-ceiling", like: []string{"0", "5", "10", "15"},
		parse: func(u *api.VMUpdate, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return cli.Usagef("want a whole number from 0 to %d", api.MaxPriority)
			}
			u.PriorityCeiling = &n
			return nil
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			return shownIf(u.PriorityCeiling != nil, strconv.Itoa(v.PriorityCeiling))
		},
	},
	{
		key: "latency", like: []string{"50us", "100us", "500us", "default"},
		parse: func(u *api.VMUpdate, s string) error {
			d, err := api.ParseLatency(s)
			if err != nil {
				return cli.Usagef("want a time from %v to %v such as 100us, or default", api.MinLatency, api.MaxLatency)
			}
			u.Latency = &d
			return nil
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			return shownIf(u.Latency != nil, timeOr(v.Latency, "default"))
		},
	},
	{
		key: "kernel-time-limit", like: []string{"1s", "10s", "none", "default"},
		parse: func(u *api.VMUpdate, s string) (err error) {
			var d time.Duration
			if s != "default" {
				if d, err = api.ParseTimeLimit(s); err != nil {
					return cli.Usagef("want a time such as 10s, at most %v, or none, or default", api.MaxTimeLimit)
				}
			}
			u.KernelTimeLimit = &d
			return nil
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			return shownIf(u.KernelTimeLimit != nil, timeOr(v.KernelTimeLimit, "none"))
		},
	},
	{
		key: "memory", like: []string{"1GiB", "4GiB", "16GiB", "none"},
		parse: func(u *api.VMUpdate, s string) error {
			var gpu domain.GPU
			if s != "none" {
				if err := gpu.Set("memory", s); err != nil {
					return cli.Usagef("want a size such as 4GiB, or none")
				}
			}
			u.MemoryLimitBytes = &gpu.Memory
			return nil
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			limit := "none"
			if v.MemoryLimitBytes > 0 {
				limit = size(v.MemoryLimitBytes)
			}
			return shownIf(u.MemoryLimitBytes != nil, limit)
		},
	},
	{
		key: "budget", like: []string{"1h/day", "10h/week", "100h/month", "none"},
		parse: func(u *api.VMUpdate, s string) error {
			b, err := quota.Parse(s)
			u.Budget = &b
			return err
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			b := quota.Budget{}
			if v.Budget != nil {
				b = v.Budget.Budget
			}
			return shownIf(u.Budget != nil, b.String())
		},
	},
}

// partSetting is a part of the GPU's time.
func partSetting(key string, field func(*api.VMUpdate) **float64, value func(*api.VM) float64) setting {
	return setting{
		key: key, like: []string{"none", "25%", "50%"},
		parse: func(u *api.VMUpdate, s string) (err error) {
			*field(u), err = parseRatio(s)
			return err
		},
		shown: func(u *api.VMUpdate, v *api.VM) string {
			part := "none"
			if value(v) != 0 {
				part = ratio(value(v))
			}
			return shownIf(*field(u) != nil, part)
		},
	}
}

// timeOr returns a time for people, or a word in the place of 0.
func timeOr(d time.Duration, none string) string {
	if d <= 0 {
		return none
	}
	return d.String()
}

func shownIf(changed bool, value string) string {
	if !changed {
		return ""
	}
	return value
}

// settingKeys lists the keys for people.
func settingKeys() string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.key
	}
	return strings.Join(keys, ", ")
}

// parseVMUpdate parses assignments such as weight=4.
func parseVMUpdate(assignments []string) (u api.VMUpdate, err error) {
	for _, assignment := range assignments {
		key, value, ok := strings.Cut(assignment, "=")
		if !ok {
			return u, cli.Usagef("%q: want KEY=VALUE, with one of these keys: %s", assignment, settingKeys())
		}
		i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key || s.old != "" && s.old == key })
		if i < 0 && slices.Contains(domain.Attributes(), key) {
			return u, cli.Usagef("%q can't be changed: it is chosen when a guest is created; want one of %s", key, settingKeys())
		}
		if i < 0 {
			return u, cli.Usagef("%q: no such key: want one of %s%s", key, settingKeys(), didYouMean(key))
		}
		if err := settings[i].parse(&u, value); err != nil {
			return u, cli.Usagef("%s %q: %v", settings[i].key, value, err)
		}
	}
	// The unchanged terms are valid, so valid defaults stand for them.
	if err := u.Apply(api.Terms{Weight: 1}).Check(); err != nil {
		return u, cli.UsageError{Err: err}
	}
	return u, nil
}

// didYouMean names the key that is most like a wrong one, if there is one.
func didYouMean(key string) string {
	for _, s := range settings {
		if nearest.Distance(key, s.key) <= 2 {
			return "; did you mean " + s.key + "?"
		}
	}
	return ""
}

// updated formats the guest's changed settings.
func updated(v *api.VM, u *api.VMUpdate) string {
	var all []string
	for _, s := range settings {
		if value := s.shown(u, v); value != "" {
			all = append(all, s.key+" "+value)
		}
	}
	return strings.Join(all, ", ")
}

func parseNumber(value string) (*float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return nil, cli.Usagef("want a number")
	}
	return &x, nil
}

// parseRatio parses a part of the GPU's time: 0.25, 25% or none.
func parseRatio(value string) (*float64, error) {
	if value == "none" {
		return new(float64), nil
	}
	digits, percent := strings.CutSuffix(value, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return nil, cli.Usagef("want a part of the GPU's time from 0 to 1, such as 0.25 or 25%%, or none")
	}
	return &x, nil
}
