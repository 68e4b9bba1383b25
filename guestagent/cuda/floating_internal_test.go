package cuda

import (
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]uint64{
		"1": 1, "512M": 512 << 20, "3g": 3 << 30, "7K": 7 << 10, "18446744073709551615": 1<<64 - 1,
		"": 0, "0": 0, "0M": 0, "-1": 0, "1.5G": 0, "M": 0, "18446744073709551615K": 0, "17179869184G": 0, "GG": 0,
	} {
		if got, ok := parseBytes(s); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", s, got, ok, want)
		}
	}
}

// TestTaskMemory: the variable says what a program's contexts ask for.
func TestTaskMemory(t *testing.T) {
	for value, want := range map[string]driver.Placement{"3M": {State: abi.TaskPlaced, Granted: 3 << 20}, "": {GPU: -1}} {
		t.Setenv(taskMemoryVariable, value)
		c, _ := newCall(t)
		var h Handle
		if r := c.CtxCreateV2(&h, 0, 0); r != Success {
			t.Fatal(r)
		}
		got, err := get[Context](&c.d.objects, h).gpu.Placement()
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", value, got, err, want)
		}
	}
}
