package rm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// branches are the driver's branches whose layouts package abi has, each with the version on which
// they were tried.
var branches = []struct {
	branch int
	tried  string
}{
	{580, "580.159.04"},
}

// KnownDriver reports whether this package knows the calls of the driver's branch, and returns the
// nearest version on which they were tried.
func KnownDriver(version string) (nearest string, known bool) {
	major, _, _ := strings.Cut(version, ".")
	branch, err := strconv.Atoi(major)
	b := slices.MinFunc(branches, func(a, b struct {
		branch int
		tried  string
	}) int {
		return cmp.Compare(abs(a.branch-branch), abs(b.branch-branch))
	})
	return b.tried, err == nil && b.branch == branch
}

func abs(n int) int { return max(n, -n) }
