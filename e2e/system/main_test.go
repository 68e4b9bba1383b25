package system

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"vgpud/e2e/host"
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(modeVariable); mode {
	case "":
	case cardMode:
		os.Exit(runCard())
	case spinMode:
		spin()
	default:
		os.Exit(misbehave(mode, os.Getenv(socketVariable)))
	}
	flag.Parse()
	// The busy processes should slow down the tests, not the compiler.
	_, err := host.Programs()
	end, berr := startBusy(*busyProcesses)
	if err := errors.Join(err, berr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, err := range []error{end(), host.Cleanup()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
