// Command mutants shows that tests notice what they are there for. Each file in patches/ removes
// one mechanism from the tree and names the test that must then fail:
//
//	Item: 13 A1
//	Removes: the groups of lanes of a warp exchange
//	Fails: go test ./gpu/soft/simt -run '^TestExchangeGroups$'
//
// An empty line and a git diff follow. The command works on copies of the tree, including
// uncommitted changes, side by side, and removes them at the end. Each named test must pass there;
// then, for each patch, it applies the patch, runs the test, which must fail, and reverts the patch.
// A test that was not compiled or did not run shows nothing, and counts as a failure of its own.
//
//	mutants                 all patches
//	mutants -run '^13 C'    those whose item, a space and name match
//	mutants -o json         for programs
//	mutants -resume FILE    appends each result to FILE, and skips what FILE says was killed
//
// Reading order: patch.go reads patches, tree.go copies the tree and changes the copy, gotest.go runs
// a test and determines how it ended with selector.go, campaign.go runs everything, record.go keeps
// results of a campaign that may be interrupted, table.go prints. The copy lacks all that is
// downloaded or built outside the tree, such as the initramfs of the tests' VMs: a patch names a test
// that builds what it runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run executes the command line args. It returns an error if any of the chosen patches was not
// killed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	f.SetOutput(stderr)
	root := f.String("tree", ".", "the tree's directory, in a git checkout")
	patches := f.String("patches", filepath.Join("e2e", "mutants", "patches"), "where in the tree the patches are")
	choose := f.String("run", "", "only patches whose `item and name`, with a space between, match this regular expression")
	format := f.String("o", "table", "how the results are printed: table or json")
	tags := f.String("tags", "", "build tags, separated by commas, for what has none of its own")
	limit := f.Duration("limit", 5*time.Minute, "how long a test may take that names no -timeout")
	jobs := f.Int("j", runtime.NumCPU(), "how many copies of the tree are worked on side by side")
	resume := f.String("resume", "", "the `file` to which results are appended, one JSON object a line; patches that it says were killed are not tried again, so it is for one state of the tree")
	if err := f.Parse(args); err != nil {
		return flag.ErrHelp
	}
	print := printTable
	switch *format {
	case "table":
	case "json":
		print = printJSON
	default:
		return fmt.Errorf("unknown format %q: want table or json", *format)
	}
	which, err := regexp.Compile(*choose)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *jobs < 1 {
		return fmt.Errorf("-j: want at least 1, got %d", *jobs)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	chosen, err := readPatches(filepath.Join(*root, *patches), which)
	if err != nil {
		return err
	}
	r, err := openRecord(*resume)
	if err != nil {
		return err
	}
	defer r.close()
	results, rest := r.killed(chosen)
	c := campaign{limit: *limit, progress: stderr, record: r.add}
	for range min(*jobs, len(rest)) {
		t, err := copyTree(ctx, *root, *tags)
		if err != nil {
			return err
		}
		defer t.remove()
		c.trees = append(c.trees, t)
	}
	tried, err := c.run(ctx, rest)
	if err != nil {
		return err
	}
	results = inOrder(append(results, tried...), chosen)
	if err := print(stdout, results); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	var bad int
	for _, r := range results {
		if r.Verdict != killed {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d patches were not killed", bad, len(results))
	}
	return nil
}
