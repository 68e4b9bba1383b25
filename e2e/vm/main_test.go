package vm

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"vgpud/e2e/host"
)

var campaign = flag.Duration("campaign", 0, "how long TestCampaign shares a GPU; 0: not at all")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
