package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	const events = `go: downloading something
{"Action":"start","Package":"p/a"}
{"Action":"run","Package":"p/a","Test":"TestWell"}
{"Action":"output","Package":"p/a","Test":"TestWell","Output":"=== RUN   TestWell\n"}
{"Action":"output","Package":"p/a","Test":"TestWell","Output":"    a_test.go:3: nobody reads this\n"}
{"Action":"output","Package":"p/a","Test":"TestWell","Output":"--- PASS: TestWell (0.00s)\n"}
{"Action":"pass","Package":"p/a","Test":"TestWell","Elapsed":5.4}
{"Action":"pass","Package":"p/a","Test":"TestSlow/most","Elapsed":60}
{"Action":"pass","Package":"p/a","Test":"TestSlow","Elapsed":61.2}
{"Action":"pass","Package":"p/a","Test":"TestQuick","Elapsed":4.9}
{"Action":"output","Package":"p/a","Test":"TestNot/here","Output":"=== RUN   TestNot/here\n"}
{"Action":"output","Package":"p/a","Test":"TestNot/here","Output":"    a_test.go:9: no KVM\n"}
{"Action":"output","Package":"p/a","Test":"TestNot/here","Output":"    --- SKIP: TestNot/here (0.00s)\n"}
{"Action":"skip","Package":"p/a","Test":"TestNot/here"}
{"Action":"output","Package":"p/a","Output":"PASS\n"}
{"Action":"output","Package":"p/a","Output":"ok  \tp/a\t0.1s\n"}
{"Action":"pass","Package":"p/a"}
{"Action":"output","Package":"p/b","Test":"TestIll","Output":"=== RUN   TestIll\n"}
{"Action":"output","Package":"p/b","Test":"TestIll","Output":"    b_test.go:5: got 1, want 2\n"}
{"Action":"output","Package":"p/b","Test":"TestIll","Output":"--- FAIL: TestIll (0.00s)\n"}
{"Action":"fail","Package":"p/b","Test":"TestIll"}
{"Action":"output","Package":"p/b","Test":"TestPanics","Output":"panic: oh\n"}
{"Action":"output","Package":"p/b","Output":"FAIL\tp/b\t0.1s\n"}
{"Action":"fail","Package":"p/b"}
{"ImportPath":"p/c","Action":"build-output","Output":"c.go:1: syntax error\n"}
{"ImportPath":"p/c","Action":"build-fail"}
{"Action":"output","Package":"p/c","Output":"FAIL\tp/c [build failed]\n"}
{"Action":"fail","Package":"p/c","FailedBuild":"p/c"}
{"Action":"output","Package":"p/d","Test":"TestCutOff","Output":"what it said so far\n"}
`
	const want = `go: downloading something
ok  	p/a	0.1s
    b_test.go:5: got 1, want 2
--- FAIL: TestIll (0.00s)
panic: oh
FAIL	p/b	0.1s
c.go:1: syntax error
FAIL	p/c [build failed]
what it said so far
slowest:
  61 s p/a.TestSlow
  5 s p/a.TestWell
skipped:
  p/a.TestNot/here: a_test.go:9: no KVM
failed:
  p/b.TestIll
      b_test.go:5: got 1, want 2
  p/b.TestPanics
  panic: oh
`
	var got strings.Builder
	if err := report(strings.NewReader(events), &got, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestProgress: where nothing was printed since the last tick, a line says which packages are tested.
func TestProgress(t *testing.T) {
	in, w := io.Pipe()
	ticks := make(chan time.Time)
	var out, progress strings.Builder
	done := make(chan error)
	go func() { done <- report(in, &out, &progress, ticks) }()
	send := func(lines ...string) {
		for _, l := range lines {
			if _, err := io.WriteString(w, l+"\n"); err != nil {
				t.Error(err)
			}
		}
		// A line that was sent is read before the ticks that follow it are.
		if _, err := io.WriteString(w, "\n"); err != nil {
			t.Error(err)
		}
	}
	ticks <- time.Time{}
	var starts []string
	for _, p := range []string{"a", "b", "c", "d", "e", "f"} {
		starts = append(starts, `{"Action":"start","Package":"`+p+`"}`)
	}
	send(starts...)
	ticks <- time.Time{}
	send(`{"Action":"output","Package":"b","Output":"ok b\n"}`, `{"Action":"pass","Package":"b"}`, `{"Action":"pass","Package":"d"}`)
	ticks <- time.Time{} // a package's line was printed
	ticks <- time.Time{}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	const want = "0 packages tested; tests are built\n0 packages tested; a, b, c, d and 2 more under way\n2 packages tested; a, c, e, f under way\n"
	if progress.String() != want {
		t.Errorf("progress:\n%swant:\n%s", &progress, want)
	}
	if !strings.HasPrefix(strings.TrimLeft(out.String(), "\n"), "ok b\n") {
		t.Errorf("output: %q", &out)
	}
}
