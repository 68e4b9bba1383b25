package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

type options struct {
	bin, tree string
	pattern   string
	results   string
	page      string
	list      bool
	build     bool
	report    bool
	resume    bool
	again     bool
	fresh     bool
	parallel  int
	limit     time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "the directory of vgpud's programs, and of its libraries in lib/")
	flag.StringVar(&o.tree, "tree", ".", "the directory of vgpud's source")
	flag.StringVar(&o.pattern, "run", "", "only tests whose suite and name match this regular expression; other tests' results stay")
	flag.StringVar(&o.results, "results", "", "the file of results, one a line (default: in the cache)")
	flag.StringVar(&o.page, "page", "", "write the page of results to this file, unless -run chose some of the tests")
	flag.BoolVar(&o.list, "list", false, "only list the tests, with the reasons of those that aren't run")
	flag.BoolVar(&o.build, "build", false, "only build the tests")
	flag.BoolVar(&o.report, "report", false, "only report the results that there are")
	flag.BoolVar(&o.resume, "resume", false, "keep the results that there are, and run only tests that have none")
	flag.BoolVar(&o.again, "again", false, "with -resume: run failed tests again")
	flag.BoolVar(&o.fresh, "fresh", false, "with -resume: run tests again whose results another build gave")
	flag.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "tests at a time")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "a test that runs longer hangs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	for _, dir := range []*string{&o.bin, &o.tree} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	c, err := openToolchain(o.tree, o.bin)
	if err != nil {
		return err
	}
	tests, err := allTests(c)
	if err != nil {
		return err
	}
	if tests, err = chosen(tests, o.pattern); err != nil {
		return err
	}
	if o.list {
		for _, t := range tests {
			fmt.Printf("%s\t%s\n", t.id(), t.skip)
		}
		return nil
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if o.build {
		return buildAll(ctx, c, tests, o.parallel)
	}
	if o.results == "" {
		o.results = filepath.Join(c.dir, "results.jsonl")
	}
	rs, err := o.openResults(tests)
	if err != nil {
		return err
	}
	if !o.report {
		err = runAll(ctx, c, tests, rs, o)
	}
	return errors.Join(err, rs.Close(), report(tests, rs, o))
}

// allTests returns the tests of all suites, with the listed ones marked.
func allTests(c *toolchain) ([]*test, error) {
	var tests []*test
	for _, list := range []func(*toolchain) ([]*test, int, error){libgompTests, halideTests} {
		some, _, err := list(c)
		if err != nil {
			return nil, err
		}
		tests = append(tests, some...)
	}
	exclusions, err := parseExclusions(excludedText)
	if err != nil {
		return nil, err
	}
	return sorted(tests), exclude(tests, exclusions)
}

// chosen returns the tests that a pattern matches.
func chosen(tests []*test, pattern string) ([]*test, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	var some []*test
	for _, t := range tests {
		if re.MatchString(t.id()) {
			some = append(some, t)
		}
	}
	return some, nil
}

// buildAll builds tests, and counts those that don't build.
func buildAll(ctx context.Context, c *toolchain, tests []*test, parallel int) error {
	var (
		mu            sync.Mutex
		built, broken int
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, t := range tests {
		if t.skip != "" || t.steps == nil {
			continue
		}
		g.Go(func() error {
			_, err := c.build(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			var be *buildError
			switch {
			case errors.As(err, &be):
				broken++
				fmt.Printf("%s: %s\n", t.id(), be.text)
			case err != nil:
				return fmt.Errorf("%s: %w", t.id(), err)
			}
			if built++; built%50 == 0 {
				fmt.Fprintf(os.Stderr, "%d built\n", built)
			}
			return nil
		})
	}
	err := g.Wait()
	fmt.Printf("%d built, %d of them do not\n", built, broken)
	return err
}

// openResults opens the file of results. Those of the chosen tests are left out if they are to run
// again. Those of tests that were not chosen stay.
func (o *options) openResults(chosen []*test) (*results, error) {
	rs, err := openResults(o.results, o.resume || o.report || o.pattern != "")
	if err == nil && !o.resume && !o.report {
		rs.forget(chosen)
	}
	return rs, err
}

// keeps reports whether a test that has result r is not run again by a build.
func (o *options) keeps(r result, build string) bool {
	return !(o.again && r.Outcome == failed) && !(o.fresh && r.Build != build)
}

// runAll runs the tests that have no result yet, several at a time, each of these on a guest.
func runAll(ctx context.Context, c *toolchain, tests []*test, rs *results, o *options) (err error) {
	build, err := buildOf(ctx, o.tree, o.bin)
	if err != nil {
		return err
	}
	var due []*test
	for _, t := range tests {
		switch r, ok := rs.has(t); {
		case t.skip != "":
			if ok && r.Cause == t.skip {
				continue
			}
			if err := rs.add(result{Build: build, Suite: t.Suite, Name: t.Name, Outcome: listed, Cause: t.skip}); err != nil {
				return err
			}
		case ok && o.keeps(r, build):
		default:
			due = append(due, t)
		}
	}
	if len(due) == 0 {
		return nil
	}
	h, err := newHost(ctx, o.bin)
	if h != nil {
		defer func() { err = errors.Join(err, h.Close()) }()
	}
	if err != nil {
		return err
	}
	queue := make(chan *test)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(queue)
		for _, t := range due {
			select {
			case queue <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var (
		mu   sync.Mutex
		done int
	)
	for i := range min(o.parallel, len(due)) {
		g.Go(func() error {
			guest, err := h.newGuest(ctx, fmt.Sprintf("suite%d", i))
			if err != nil {
				return err
			}
			w := &worker{c: c, build: build, h: h, guest: guest, limit: o.limit}
			for t := range queue {
				r, err := w.run(ctx, t)
				if err == nil {
					err = rs.add(r)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", t.id(), err)
				}
				mu.Lock()
				done++
				fmt.Fprintf(os.Stderr, "%d/%d %s: %s (%.1f s) %s\n", done, len(due), r.Outcome, t.id(), r.Seconds, r.Cause)
				mu.Unlock()
			}
			return nil
		})
	}
	return g.Wait()
}
