// Command testreport reads what `go test -json` says and prints what one wants to
// read of it: a line for each package, all that failing tests and builds have said,
// and in the end which tests were skipped and why. It goes by the events alone: that
// go test failed is for its own exit status to tell.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}
