package rm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// branches are the driver's branches whose layouts package abi has, each with the version
// that they were tried on.
var branches = []struct {
	branch int
	tried  string
}{
	{580, "580.159.04"},
}

// KnownDriver says whether the driver's version is of a branch whose calls this package
// knows, and which of the versions they were tried on is nearest.
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
