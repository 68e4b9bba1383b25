package api

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The errors of a [Host] wrap these.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrInvalid  = errors.New("invalid")
	ErrNoRoom   = errors.New("no room")
	ErrInUse    = errors.New("in use")
	// ErrBusy means that too many callers ask for the same at a time.
	ErrBusy = errors.New("too many at a time")
	// ErrForbidden means that the caller's role does not allow what was asked.
	ErrForbidden = errors.New("not allowed")
	// ErrNotSaved means that a change was not made, because it could not be saved for the next
	// daemon.
	ErrNotSaved = errors.New("the daemon can't save its state")
)

// Limits of what may be asked for.
const (
	MinWeight = 0.001
	MaxWeight = 1_000_000
	// MaxPriority is the highest priority that launches can have.
	MaxPriority = 15
	// MinLatency and MaxLatency bound the time within which others' kernels should leave the GPU.
	MinLatency = 10 * time.Microsecond
	MaxLatency = time.Second
	maxName    = 64
)

// AnyGPU is the name of no GPU: it leaves the choice to the daemon.
const AnyGPU = "any"

// Limits of what may be asked for, with their reasons.
const (
	// MaxTimeLimit is the longest time limit of kernels. A longer one is most likely a typing
	// error; to let kernels run longer, there is no limit at all.
	MaxTimeLimit = 24 * time.Hour
	// MaxMemoryLimit is a pebibyte, some thousand times the memory of a GPU. Limits on a GPU are
	// added up, and limits up to this one do not overflow.
	MaxMemoryLimit = 1 << 50
	// MaxID is the largest number of a user or a group. The next one means none in chown(2), which
	// takes numbers modulo 2³².
	MaxID = 1<<32 - 2
	// maxPath is the longest path that Linux opens, in bytes.
	maxPath = 4095
)

// CheckEngine returns an error if name can't be the name of the engine that placed a guest.
func CheckEngine(name string) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// CheckID returns an error if id is not the number of a user or a group. what names it in the
// error.
func CheckID(what string, id int) error {
	if id < 0 || id > MaxID {
		return fmt.Errorf("%s %d: want a number from 0 to %d: %w", what, id, MaxID, ErrInvalid)
	}
	return nil
}

// CheckTimeLimit returns an error if d is not a limit of kernels' GPU time: 0 means the daemon's,
// and a negative one none.
func CheckTimeLimit(d time.Duration) error {
	if d > MaxTimeLimit {
		return fmt.Errorf("time limit %v: want at most %v, or below 0 for none: %w", d, MaxTimeLimit, ErrInvalid)
	}
	return nil
}

// CheckMemoryLimit returns an error if n is not a limit of GPU memory in bytes; 0 means none.
func CheckMemoryLimit(n uint64) error {
	if n > MaxMemoryLimit {
		return fmt.Errorf("memory limit of %d bytes: want at most %d, or 0 for none: %w", n, uint64(MaxMemoryLimit), ErrInvalid)
	}
	return nil
}

// NoTimeLimit lets kernels run without limit: one that never ends keeps the GPU from all other
// guests.
const NoTimeLimit time.Duration = -1

// ParseTimeLimit parses a limit of kernels' GPU time: "none", which is NoTimeLimit, or a positive
// duration up to [MaxTimeLimit] such as "10s".
func ParseTimeLimit(s string) (time.Duration, error) {
	if s == "none" {
		return NoTimeLimit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > MaxTimeLimit {
		return 0, fmt.Errorf("time limit %q: want \"none\" or a positive duration up to %v such as 10s: %w", s, MaxTimeLimit, ErrInvalid)
	}
	return d, nil
}

// ParseLatency parses the time within which others' kernels should leave the GPU: "default", which
// is 0, or a time such as "100us".
func ParseLatency(s string) (time.Duration, error) {
	if s == "default" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < MinLatency || d > MaxLatency {
		return 0, fmt.Errorf("latency %.40q: want \"default\" or a time from %v to %v such as 100us: %w", s, MinLatency, MaxLatency, ErrInvalid)
	}
	return d, nil
}

// CheckWeight returns an error if w is not a weight.
func CheckWeight(w float64) error {
	if !(w >= MinWeight && w <= MaxWeight) { // NaN too
		return fmt.Errorf("weight %v: want a number from %v to %d: %w", w, MinWeight, MaxWeight, ErrInvalid)
	}
	return nil
}

// CheckName returns an error if name can't be a guest's name, which becomes part of a path.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && name[0] != '.' && name[0] != '-'
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("name %q: want 1 to %d letters, digits, '-', '_' or '.', not starting with '-' or '.': %w", name, maxName, ErrInvalid)
	}
	return nil
}

// Check returns an error if the terms are invalid. Weight must be set.
func (t Terms) Check() error {
	if err := CheckWeight(t.Weight); err != nil {
		return err
	}
	if !(t.Cap >= 0 && t.Cap <= 1) {
		return fmt.Errorf("cap %v: want a part of the GPU's time from 0 (no cap) to 1: %w", t.Cap, ErrInvalid)
	}
	if !(t.Guarantee >= 0 && t.Guarantee <= 1) {
		return fmt.Errorf("guarantee %v: want a part of the GPU's time from 0 (none) to 1: %w", t.Guarantee, ErrInvalid)
	}
	if t.Cap > 0 && t.Guarantee > t.Cap {
		return fmt.Errorf("guarantee %v: more than the cap, %v: %w", t.Guarantee, t.Cap, ErrInvalid)
	}
	if t.PriorityCeiling < 0 || t.PriorityCeiling > MaxPriority {
		return fmt.Errorf("priority ceiling %d: want a number from 0 to %d: %w", t.PriorityCeiling, MaxPriority, ErrInvalid)
	}
	if t.Latency < 0 || t.Latency > 0 && t.Latency < MinLatency || t.Latency > MaxLatency {
		return fmt.Errorf("latency %v: want a time from %v to %v, or 0 for the default: %w", t.Latency, MinLatency, MaxLatency, ErrInvalid)
	}
	if err := t.Budget.Check(); err != nil {
		return fmt.Errorf("budget: %w: %w", err, ErrInvalid)
	}
	if err := CheckMemoryLimit(t.MemoryLimitBytes); err != nil {
		return err
	}
	return CheckTimeLimit(t.KernelTimeLimit)
}

// Check returns an error if the peer is invalid.
func (p Peer) Check() error {
	switch {
	case p.PID == 0 && p.PIDFile == "", p.PID != 0 && p.PIDFile != "":
		return fmt.Errorf("peer: want either a pid or a pid_file: %w", ErrInvalid)
	case p.PID < 0 || p.PID > math.MaxInt32:
		return fmt.Errorf("peer: pid %d: want the number of a process: %w", p.PID, ErrInvalid)
	case p.PIDFile != "" && (!filepath.IsAbs(p.PIDFile) || filepath.Clean(p.PIDFile) != p.PIDFile):
		return fmt.Errorf("peer: pid_file %q: want an absolute path without \"..\": %w", p.PIDFile, ErrInvalid)
	case len(p.PIDFile) > maxPath:
		return fmt.Errorf("peer: pid_file of %d bytes: want at most %d: %w", len(p.PIDFile), maxPath, ErrInvalid)
	}
	return nil
}

// CheckDomain returns an error if name can't be a libvirt domain's name, which is only shown. Empty
// means none.
func CheckDomain(name string) error { return checkText("domain", name) }

// CheckAccount returns an error if owner or project can't be whom usage is billed to. Empty means
// nobody in particular.
func CheckAccount(owner, project string) error {
	for what, s := range map[string]string{"owner": owner, "project": project} {
		if s != CleanText(s) {
			return fmt.Errorf("%s %.300q: want at most %d bytes of text that prints on one line: %w", what, s, MaxText, ErrInvalid)
		}
	}
	return nil
}

func checkText(what, s string) error {
	if len(s) > MaxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s %q: want at most %d bytes of text: %w", what, s, MaxText, ErrInvalid)
	}
	return nil
}

// MaxText bounds the names of domains, owners and projects, in bytes.
const MaxText = 255

// CleanText returns s as it may be recorded and shown: valid UTF-8 of at most MaxText bytes that
// prints on one line. Some names were chosen by tenants.
func CleanText(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	for len(s) > MaxText {
		_, n := utf8.DecodeLastRuneInString(s)
		s = strings.TrimSpace(s[:len(s)-n])
	}
	return s
}

// CheckUUID returns an error if uuid, which becomes part of a path, is not 8-4-4-4-12 hexadecimal
// digits in lower case.
func CheckUUID(uuid string) error {
	ok := len(uuid) == 36
	for i := 0; ok && i < len(uuid); i++ {
		switch c := uuid[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			ok = c == '-'
		default:
			ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		}
	}
	if !ok {
		return fmt.Errorf("UUID %q: want 8-4-4-4-12 hexadecimal digits in lower case: %w", uuid, ErrInvalid)
	}
	return nil
}
