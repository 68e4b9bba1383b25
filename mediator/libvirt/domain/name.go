package domain

import (
	"strconv"
	"strings"
)

// maxGuestName is how long a guest's name may be.
const maxGuestName = 64

// GuestName is what the daemon's guest for virtual GPU number n of a domain is
// called: as the domain, with -N for every one but the first, and a '_' for each
// character that a guest's name can't have. other is whether that name is
// another's; then the first digits of the domain's UUID are added.
func GuestName(domain, uuid string, n int, other bool) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, domain)
	suffix := ""
	if n > 0 {
		suffix = "-" + strconv.Itoa(n)
	}
	if other {
		suffix += "-" + uuid[:min(8, len(uuid))]
	}
	name = name[:min(len(name), maxGuestName-len(suffix))]
	if name == "" || name[0] == '-' || name[0] == '.' {
		name = "_" + name[min(1, len(name)):]
	}
	return name + suffix
}
