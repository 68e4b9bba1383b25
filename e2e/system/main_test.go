package system

import (
	"fmt"
	"os"
	"testing"

	"vgpud/e2e/host"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		os.Exit(misbehave(mode, os.Getenv(socketVariable)))
	}
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
