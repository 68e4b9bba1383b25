package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// verdict is the outcome of a patch.
type verdict string

const (
	killed        verdict = "killed"
	survived      verdict = "SURVIVED"
	doesNotApply  verdict = "does not apply"
	notCompiled   verdict = "does not compile"
	nothingToRun  verdict = "no tests to run"
	onlySkipped   verdict = "test skipped"
	failsAnyway   verdict = "test fails without it"
	notEnded      verdict = "did not end"
	outsideOfTest verdict = "failed outside of tests"
)

// result is a patch's line of the table.
type result struct {
	Item    string  `json:"item"`
	Patch   string  `json:"patch"`
	Removes string  `json:"removes"`
	Test    string  `json:"test"`
	Verdict verdict `json:"result"`
	Seconds float64 `json:"seconds"` // with the patch
	Digest  string  `json:"sha256"`  // of the patch's file
}

// campaign tries patches on several trees at once.
type campaign struct {
	trees    []tree
	limit    time.Duration // of a test without a -timeout
	progress io.Writer
	record   func(result) error // called for each result, not concurrently

	mu      sync.Mutex
	results []result
	total   int
	begun   time.Time
}

// run tries the patches. It returns an error only if it could not continue.
func (c *campaign) run(ctx context.Context, patches []patch) ([]result, error) {
	c.total, c.begun = len(patches), time.Now()
	beside, alone := batches(patches)
	queue := make(chan []patch, len(beside))
	for _, b := range beside {
		queue <- b
	}
	close(queue)
	group, within := errgroup.WithContext(ctx)
	for _, t := range c.trees {
		group.Go(func() error {
			for b := range queue {
				if err := c.try(within, t, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	for _, b := range alone {
		if err == nil {
			err = c.try(ctx, c.trees[0], b)
		}
	}
	return c.results, err
}

// batchSize is how many patches one tree tries before it asks for others. Fewer would repeat the
// linking of a package's tests without a patch, more would leave trees idle at the end.
const batchSize = 8

// whole are the packages whose tests start whole systems. They run alone, as in scripts/unit.sh.
var whole = []string{"./e2e/cuda", "./e2e/libvirt", "./e2e/nvidia", "./e2e/system", "./e2e/vm"}

// batches groups patches whose tests run in one process, those with the same test in one batch. It
// returns the batches whose tests run beside others, and those whose tests run alone.
func batches(patches []patch) (beside, alone [][]patch) {
	patches = slices.Clone(patches)
	process := func(p patch) string {
		p.fails.run, p.fails.limit = "", 0
		return p.fails.String()
	}
	slices.SortStableFunc(patches, func(a, b patch) int {
		if n := strings.Compare(process(a), process(b)); n != 0 {
			return n
		}
		return strings.Compare(a.fails.String(), b.fails.String())
	})
	for len(patches) > 0 {
		n := 1
		for n < len(patches) && process(patches[n]) == process(patches[0]) &&
			(n < batchSize || patches[n].fails.String() == patches[n-1].fails.String()) {
			n++
		}
		if slices.Contains(whole, patches[0].fails.pkg) {
			alone = append(alone, patches[:n])
		} else {
			beside = append(beside, patches[:n])
		}
		patches = patches[n:]
	}
	// A long batch that came last would leave the other trees idle.
	slices.SortStableFunc(beside, func(a, b []patch) int { return len(b) - len(a) })
	return beside, alone
}

// try tries a batch on a tree.
func (c *campaign) try(ctx context.Context, t tree, batch []patch) error {
	unpatched, err := c.together(ctx, t, batch) // by test
	if err != nil {
		return err
	}
	for _, p := range batch {
		r := result{Item: p.item, Patch: p.name, Removes: p.removes, Test: p.fails.String(), Digest: p.digest}
		var said string
		v, tried := unpatched[r.Test]
		if !tried {
			if v, said, err = c.unpatched(ctx, t, p.fails); err != nil {
				return err
			}
			unpatched[r.Test] = v
		}
		begun := time.Now()
		if v == "" {
			if v, said, err = c.patched(ctx, t, p); err != nil {
				return err
			}
		}
		r.Verdict, r.Seconds = v, time.Since(begun).Seconds()
		if err := c.add(r, said); err != nil {
			return err
		}
	}
	return nil
}

// add records a result, and shows it with what its test said.
func (c *campaign) add(r result, said string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results = append(c.results, r)
	var line bytes.Buffer
	fmt.Fprintf(&line, "[%d/%d, %v] %s, %s: %s after %.1f s\n", len(c.results), c.total,
		time.Since(c.begun).Round(time.Second), r.Item, r.Patch, r.Verdict, r.Seconds)
	if r.Verdict != killed {
		fmt.Fprintf(&line, "    %s\n", r.Test)
		indent(&line, said)
	}
	if _, err := c.progress.Write(line.Bytes()); err != nil {
		return fmt.Errorf("show progress: %w", err)
	}
	return c.record(r)
}

// together runs the tests of a batch in one process in the tree as it is. It returns "" for those that
// pass. The verdict on the others is known only after they ran alone.
func (c *campaign) together(ctx context.Context, t tree, batch []patch) (map[string]verdict, error) {
	tests := make(map[string]command)
	all := batch[0].fails
	all.run, all.limit = "", 0
	for _, p := range batch {
		if _, ok := tests[p.fails.String()]; ok {
			continue
		}
		tests[p.fails.String()] = p.fails
		all.run += "|" + p.fails.run
		all.limit += c.limitOf(p.fails)
	}
	all.run = all.run[1:]
	passes := make(map[string]verdict)
	if len(tests) == 1 {
		return passes, nil
	}
	ran, err := t.test(ctx, all, all.limit)
	if err != nil {
		return nil, err
	}
	for name, test := range tests {
		if how, _ := judge(ran.out, test.selector(), false); how == passed {
			passes[name] = ""
		}
	}
	return passes, nil
}

// unpatched returns "" if the test passes in the tree as it is, and otherwise why it can't show
// anything, with the end of its output.
func (c *campaign) unpatched(ctx context.Context, t tree, test command) (verdict, string, error) {
	how, said, err := c.test(ctx, t, test)
	switch how {
	case passed:
		return "", "", err
	case noTests:
		return nothingToRun, said, err
	case skipped:
		return onlySkipped, said, err
	}
	return failsAnyway, said, err
}

// patched tries a patch on a tree and leaves the tree as it was. It returns the verdict and the end
// of the output that explains it.
func (c *campaign) patched(ctx context.Context, t tree, p patch) (v verdict, said string, err error) {
	if err := t.apply(ctx, p.diff); err != nil {
		return doesNotApply, err.Error(), ctx.Err()
	}
	defer func() {
		// The next patch must apply to the original tree.
		if back := t.apply(context.WithoutCancel(ctx), p.diff, "--reverse"); back != nil {
			err = errors.Join(err, fmt.Errorf("take %s back: %w", p.name, back))
		}
	}()
	how, said, err := c.test(ctx, t, p.fails)
	return map[ending]verdict{
		passed: survived, failed: killed, notBuilt: notCompiled, noTests: nothingToRun,
		skipped: onlySkipped, noEnd: notEnded, broke: outsideOfTest,
	}[how], said, err
}

// test runs a test in a tree. It returns how the test ended and the end of its output.
func (c *campaign) test(ctx context.Context, t tree, test command) (ending, string, error) {
	ran, err := t.test(ctx, test, c.limitOf(test))
	if ran.killed {
		return noEnd, tail(ran.out), err
	}
	how, said := judge(ran.out, test.selector(), ran.bad)
	return how, said, err
}

// limitOf returns how long a test may take.
func (c *campaign) limitOf(test command) time.Duration {
	if test.limit != 0 {
		return test.limit
	}
	return c.limit
}
