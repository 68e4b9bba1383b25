package cli

import "runtime/debug"

// Version returns the revision that the program was built from, or the module's version. Programs
// that are built together have the same.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
