package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
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
}

// campaign tries patches on a tree, one after the other.
type campaign struct {
	tree     tree
	tags     string
	limit    time.Duration
	progress io.Writer
}

// run tries the patches. It returns an error only if it could not continue.
func (c *campaign) run(ctx context.Context, patches []patch) ([]result, error) {
	results := make([]result, 0, len(patches))
	sound := make(map[string]verdict) // of tests without a patch; "" means passed
	for i, p := range patches {
		r := result{Item: p.item, Patch: p.name, Removes: p.removes, Test: p.fails.String()}
		fmt.Fprintf(c.progress, "[%d/%d] %s, %s: %s\n", i+1, len(patches), p.item, p.name, r.Test)
		v, tried := sound[r.Test]
		if !tried {
			var err error
			if v, err = c.unpatched(ctx, p.fails); err != nil {
				return nil, err
			}
			sound[r.Test] = v
		}
		begun := time.Now()
		if v == "" {
			var err error
			if v, err = c.patched(ctx, p); err != nil {
				return nil, err
			}
		}
		r.Verdict, r.Seconds = v, time.Since(begun).Seconds()
		fmt.Fprintf(c.progress, "  %s after %.1f s\n", v, r.Seconds)
		results = append(results, r)
	}
	return results, nil
}

// unpatched returns "" if the test passes in the tree as it is, and otherwise why it can't show
// anything.
func (c *campaign) unpatched(ctx context.Context, test command) (verdict, error) {
	how, said, err := c.tree.test(ctx, test, c.tags, c.limit)
	if err != nil {
		return "", err
	}
	switch how {
	case passed:
		return "", nil
	case noTests:
		return nothingToRun, nil
	case skipped:
		indent(c.progress, said)
		return onlySkipped, nil
	}
	indent(c.progress, said)
	return failsAnyway, nil
}

// patched tries a patch on the tree and leaves the tree as it was.
func (c *campaign) patched(ctx context.Context, p patch) (v verdict, err error) {
	if err := c.tree.apply(ctx, p.diff); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		indent(c.progress, err.Error())
		return doesNotApply, nil
	}
	defer func() {
		// The next patch must apply to the original tree.
		if back := c.tree.apply(context.WithoutCancel(ctx), p.diff, "--reverse"); back != nil {
			err = errors.Join(err, fmt.Errorf("take %s back: %w", p.name, back))
		}
	}()
	compiles, said, err := c.tree.compile(ctx, c.tags)
	if err != nil {
		return "", err
	}
	if !compiles {
		indent(c.progress, said)
		return notCompiled, nil
	}
	how, said, err := c.tree.test(ctx, p.fails, c.tags, c.limit)
	if err != nil {
		return "", err
	}
	switch how {
	case failed:
		return killed, nil
	case passed:
		return survived, nil
	case noTests:
		return nothingToRun, nil
	case skipped:
		v = onlySkipped
	case notBuilt:
		v = notCompiled
	case noEnd:
		v = notEnded
	default:
		v = outsideOfTest
	}
	indent(c.progress, said)
	return v, nil
}
