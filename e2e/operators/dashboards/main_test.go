package dashboards

import (
	"fmt"
	"os"
	"testing"

	"vgpud/e2e/host"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
