package sandbox

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultUIDs is the range used when none is configured. systemd's table of users and groups and
// Debian's policy both leave it free.
var DefaultUIDs = UIDs{First: 1_879_048_192, Last: 1_879_048_192 + 4095}

// minUID excludes system users and people.
const minUID = 1000

// maxUID excludes numbers that programs take for negative ones.
const maxUID = 1<<31 - 2

// UIDs is a range of user ids, and of group ids with the same numbers. The first is the group that
// all guests' processes share, by which they reach a soft GPU's socket; each of the others is one
// guest's. No other account of the host may use the range.
type UIDs struct{ First, Last int }

// ParseUIDs parses FIRST-LAST.
func ParseUIDs(text string) (UIDs, error) {
	first, last, ok := strings.Cut(text, "-")
	var u UIDs
	var err error
	if ok {
		if u.First, err = strconv.Atoi(strings.TrimSpace(first)); err == nil {
			u.Last, err = strconv.Atoi(strings.TrimSpace(last))
		}
	}
	if !ok || err != nil || u.First < minUID || u.Last > maxUID || u.Last <= u.First {
		return UIDs{}, fmt.Errorf("users %q: want FIRST-LAST, from %d to %d, at least two, such as %v", text, minUID, maxUID, DefaultUIDs)
	}
	return u, nil
}

// String formats the range as FIRST-LAST.
func (u UIDs) String() string { return fmt.Sprintf("%d-%d", u.First, u.Last) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *UIDs) UnmarshalText(text []byte) (err error) {
	*u, err = ParseUIDs(string(text))
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (u UIDs) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Group returns the group that all guests' processes have.
func (u UIDs) Group() int { return u.First }

// pool hands out users. A number is reused as late as possible, when what its last owner left
// behind should be gone.
type pool struct {
	of   UIDs
	used map[int]bool
	next int
	// runs reports whether a user has processes, such as those of a guest without a record, or
	// processes that outlived their guest. If nil, no user has.
	runs func(uid int) bool
}

// hasProcesses asks the kernel whether a user has processes.
func hasProcesses(uid int) bool {
	_, err := unix.Getpriority(unix.PRIO_USER, uid)
	return err == nil
}

func newPool(u UIDs) *pool { return &pool{of: u, used: make(map[int]bool), next: u.First + 1} }

// take returns a free user and marks it used.
func (p *pool) take() (int, error) {
	for range p.of.Last - p.of.First {
		uid := p.next
		if p.next++; p.next > p.of.Last {
			p.next = p.of.First + 1
		}
		if !p.used[uid] && (p.runs == nil || !p.runs(uid)) {
			p.used[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("all %d users of confinement.uids (%v) are in use: configure a larger range", p.of.Last-p.of.First, p.of)
}

// claim marks a user as used by an existing guest.
func (p *pool) claim(uid int) { p.used[uid] = true }

// release marks a user as free.
func (p *pool) release(uid int) { delete(p.used, uid) }
