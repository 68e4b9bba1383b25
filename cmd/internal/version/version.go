// Package version says which version of vgpud a program is.
package version

import (
	"runtime/debug"
	"strings"
)

// release is the version that `make build` takes from the newest tag:
// -ldflags "-X vgpud/cmd/internal/version.release=1.2.3".
var release string

// String returns the version, without a leading "v". A program that `go build` made alone has the
// version that the go command derives from the repository.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return of(info)
}

// of returns the version of a program with this build information: the module's, or else the
// revision. Without either, as in a build that left out the repository, the version is unknown.
func of(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
