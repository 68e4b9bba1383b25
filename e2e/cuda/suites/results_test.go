package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChosenTestsLeaveOthersResults checks that a run of some tests runs these again, keeps what
// other tests had, and leaves the page of all tests as it is.
func TestChosenTestsLeaveOthersResults(t *testing.T) {
	dir := t.TempDir()
	o := &options{results: filepath.Join(dir, "results"), page: filepath.Join(dir, "page.md")}
	one, two := &test{Suite: "a", Name: "one"}, &test{Suite: "a", Name: "two"}
	open := func(chosen ...*test) *results {
		t.Helper()
		rs, err := o.openResults(chosen)
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	record := func(rs *results, x *test, outcome string) {
		t.Helper()
		if err := rs.add(result{Suite: x.Suite, Name: x.Name, Outcome: outcome}); err != nil {
			t.Fatal(err)
		}
	}
	done := func(rs *results, chosen ...*test) string {
		t.Helper()
		if err := rs.Close(); err != nil {
			t.Fatal(err)
		}
		if err := report(chosen, rs, o); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(o.page)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	rs := open(one, two)
	record(rs, one, passed)
	record(rs, two, failed)
	page := done(rs, one, two)
	if want := "| a | 2 | 0 | 0 | 0 | 2 | 1 | 1 | 50.0 % |"; !strings.Contains(page, want) {
		t.Fatalf("the page of all tests lacks %q:\n%s", want, page)
	}

	o.pattern = "^a two$"
	rs = open(two)
	if r, ok := rs.has(two); ok {
		t.Errorf("the chosen test is not run again: it has %v", r)
	}
	if r, _ := rs.has(one); r.Outcome != passed {
		t.Errorf("the other test has %q, want %q", r.Outcome, passed)
	}
	record(rs, two, passed)
	if diff := cmp.Diff(page, done(rs, two)); diff != "" {
		t.Errorf("a run of one test changed the page of all: -want +got\n%s", diff)
	}

	o.pattern, o.report = "", true
	rs = open(one, two)
	if want, page := "| a | 2 | 0 | 0 | 0 | 2 | 2 | 0 | 100.0 % |", done(rs, one, two); !strings.Contains(page, want) {
		t.Errorf("after both runs the page lacks %q:\n%s", want, page)
	}
	o.report = false
	rs = open(one, two)
	defer rs.Close()
	if len(rs.of) != 0 {
		t.Errorf("a run of all tests begins with results: %v", rs.of)
	}
}
