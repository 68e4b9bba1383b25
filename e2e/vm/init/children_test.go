package main

import (
	"os"
	"testing"
)

// TestChildrenAreReaped checks that every child's status reaches its starter, however many end at
// once.
func TestChildrenAreReaped(t *testing.T) {
	c := newChildren()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	files := [3]*os.File{null, null, null}
	var all []child
	for range 20 {
		p, err := c.start([]string{"/bin/sh", "-c", "exit $X"}, []string{"X=3"}, files)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	killed, err := c.start([]string{"/bin/sh", "-c", "kill -9 $$"}, nil, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if s := describeStatus(<-p.status); s != "exit status 3" {
			t.Errorf("process %d: %s", p.pid, s)
		}
	}
	if s := describeStatus(<-killed.status); s != "signal: killed" {
		t.Error(s)
	}
	if _, err := c.start([]string{"/nothing/here"}, nil, files); !os.IsNotExist(err) {
		t.Errorf("a missing program: %v", err)
	}
}
