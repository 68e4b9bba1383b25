// Command testreport reads the output of `go test -json` and prints the useful part: a line for
// each package, all output of failing tests and builds, and at the end the slowest tests, the skipped
// ones with their reasons and the first lines of the failed ones. It judges by the events alone; go
// test's own exit status says whether it failed.
package main

import (
	"fmt"
	"os"
	"time"
)

// quiet is the time without a line after which one on standard error says what is under way. The
// first package may take minutes to be built.
const quiet = 20 * time.Second

func main() {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	if err := report(os.Stdin, os.Stdout, os.Stderr, ticker.C); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}
