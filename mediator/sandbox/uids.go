package sandbox

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultUIDs are the users of guests where none are configured. The range is free
// in systemd's table of users and groups, and in Debian's policy nobody's.
var DefaultUIDs = UIDs{First: 1_879_048_192, Last: 1_879_048_192 + 4095}

// minUID keeps the system's and people's users out of a range.
const minUID = 1000

// maxUID leaves out what programs take for a negative number.
const maxUID = 1<<31 - 2

// UIDs is a range of user ids, and of group ids of the same numbers. The first is
// the group that all guests' processes have in common, by which they reach a soft
// GPU's socket; the others are guests', one each. Nobody else may have them.
type UIDs struct{ First, Last int }

// ParseUIDs reads FIRST-LAST.
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

// String is FIRST-LAST.
func (u UIDs) String() string { return fmt.Sprintf("%d-%d", u.First, u.Last) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *UIDs) UnmarshalText(text []byte) (err error) {
	*u, err = ParseUIDs(string(text))
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (u UIDs) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Group is the group that all guests' processes have.
func (u UIDs) Group() int { return u.First }

// pool is which of the users are guests' now. A number is given out as late as
// possible after it was given back: what its last owner left behind should be gone.
type pool struct {
	of   UIDs
	used map[int]bool
	next int
	// runs reports whether a user has processes, such as those of a guest of which no record
	// is left, or that have outlived their guest; nil: nobody has.
	runs func(uid int) bool
}

// hasProcesses reports whether a user has processes, as the kernel says.
func hasProcesses(uid int) bool {
	_, err := unix.Getpriority(unix.PRIO_USER, uid)
	return err == nil
}

func newPool(u UIDs) *pool { return &pool{of: u, used: make(map[int]bool), next: u.First + 1} }

// take gives out a user that is nobody's.
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
	return 0, fmt.Errorf("all %d users of confinement.uids (%v) are guests', or have processes: configure more", p.of.Last-p.of.First, p.of)
}

// claim notes a user that a guest has already.
func (p *pool) claim(uid int) { p.used[uid] = true }

// give takes a user back.
func (p *pool) give(uid int) { delete(p.used, uid) }
