package domain

import (
	"strconv"
	"strings"
)

// maxGuestName bounds the length of a guest's name.
const maxGuestName = 64

// GuestName returns the name of the daemon's guest for virtual GPU number n of a domain: the
// domain's name, with '_' in place of invalid characters, and with -N for every one but the first.
// If taken is set, another guest has that name, and the first digits of the domain's UUID are
// added.
func GuestName(domain, uuid string, n int, taken bool) string {
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
	if taken {
		suffix += "-" + uuid[:min(8, len(uuid))]
	}
	name = name[:min(len(name), maxGuestName-len(suffix))]
	if name == "" || name[0] == '-' || name[0] == '.' {
		name = "_" + name[min(1, len(name)):]
	}
	return name + suffix
}
