package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestEventReasons: the API says why the host launches a kernel's events, and nothing for a kernel
// that it does not launch, whatever an executor tells.
func TestEventReasons(t *testing.T) {
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	for i, k := range []ipc.EventKernel{
		{Tier: abi.EventHost, Why: abi.EventReasonOf("barrier")},
		{Tier: abi.EventHost, Why: abi.EventReasonGrid},
		{Tier: abi.EventHost, Why: 200}, // of a newer version
		{Tier: abi.EventHost},           // of an older one
		{Tier: abi.EventWarp, Why: abi.EventReasonGrid},
	} {
		if k.Number, _ = page.TakeEventNumber(0); k.Number != i {
			t.Fatalf("number %d", k.Number)
		}
		page.SetEventKernel(k)
	}
	g := &guest{presence: presence{page: page}}
	list, _, _, _ := g.eventKernels()
	var got []string
	for _, k := range list {
		got = append(got, k.Tier+" "+k.Reason)
	}
	if diff := cmp.Diff([]string{"host barrier", "host grid", "host reason 200", "host ", "warp "}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
