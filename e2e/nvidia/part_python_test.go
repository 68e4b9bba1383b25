package main

import (
	"slices"
	"testing"
)

// TestFailedInGuest holds that a test counts as failed where it failed, where it was skipped though
// it passes natively, and where its process ended before it.
func TestFailedInGuest(t *testing.T) {
	native, err := readJUnit([]byte(`<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="0" failures="1" skipped="1" tests="5">
<testcase classname="numba.cuda.tests.cudapy.test_array.TestArray" name="test_copy" time="0.1" />
<testcase classname="test_array.TestArray" name="test_gone" time="0.1" />
<testcase classname="test_array.TestArray" name="test_left_out" time="0.1" />
<testcase classname="test_array.TestArray" name="test_bad" time="0.1"><failure message="AssertionError: 1 != 2&#10;more">trace</failure></testcase>
<testcase classname="test_array" name="test_function[1-a]" time="0.1"><skipped type="pytest.skip" message="why" /></testcase>
</testsuite></testsuites>`))
	if err != nil {
		t.Fatal(err)
	}
	if native.count(passed) != 3 || native.count(notPassed) != 1 || native.count(skipped) != 1 {
		t.Errorf("found %v", native)
	}
	if got := native["TestArray.test_bad"]; got.reason != "AssertionError: 1 != 2" {
		t.Errorf("the reason is %q", got.reason)
	}
	guest, err := readJUnit([]byte(`<testsuites><testsuite>
<testcase classname="test_array.TestArray" name="test_copy"><error message="setup" /></testcase>
<testcase classname="test_array.TestArray" name="test_left_out"><skipped message="no such GPU" /></testcase>
<testcase classname="test_array.TestArray" name="test_bad" />
</testsuite></testsuites>`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"TestArray.test_copy", "TestArray.test_gone", "TestArray.test_left_out"}
	if got := failedInGuest(native, guest); !slices.Equal(got, want) {
		t.Errorf("failed %v, want %v", got, want)
	}
	if _, err := readJUnit([]byte("<testsuites><testsuite>")); err == nil {
		t.Error("half a file was read")
	}
}
