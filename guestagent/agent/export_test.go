package agent

import "time"

// SetContextEndTimeout has the agent log sooner that the host does not end contexts, and returns a
// function that undoes that.
func SetContextEndTimeout(d time.Duration) (restore func()) {
	old := contextEndTimeout
	contextEndTimeout = d
	return func() { contextEndTimeout = old }
}
