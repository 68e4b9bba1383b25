package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/api"
)

// TestWatchPrintsChanges: after the list come rows that have changed, new ones, and those that are
// gone, under the same headings.
func TestWatchPrintsChanges(t *testing.T) {
	lists := [][]api.GPU{
		{{Name: "gpu0", Model: "m", Policy: "dfq", Healthy: true}, {Name: "gpu1", Model: "m", Policy: "dfq", Healthy: true}},
		{{Name: "gpu0", Model: "m", Policy: "dfq", Healthy: true}, {Name: "gpu1", Model: "m", Policy: "dfq", Healthy: true}},
		{{Name: "gpu0", Model: "m", Policy: "dfq", Healthy: true}, {Name: "gpu1", Model: "m", Policy: "none", Healthy: true}},
		{{Name: "gpu1", Model: "m", Policy: "none", Healthy: true}, {Name: "gpu2", Model: "m", Policy: "dfq", Healthy: true}},
	}
	for kind, want := range map[string]string{
		"table": `NAME   MODEL   STATUS    POLICY   VMS   BUSY   BUSY-SECONDS   SWITCHES
gpu0   m       healthy   dfq      0     0.0%   0.00           0
gpu1   m       healthy   dfq      0     0.0%   0.00           0
gpu1   m       healthy   none     0     0.0%   0.00           0
gpu2   m       healthy   dfq      0     0.0%   0.00           0
gpu0   m       gone      dfq      0     0.0%   0.00           0
`,
		"name": "gpu0\ngpu1\ngpu1\ngpu2\n",
	} {
		var out strings.Builder
		p := watchPrinter[api.GPU]{streamPrinter: newStreamPrinter(&out, &output.Format{Kind: kind}, &gpuTable), rows: make(map[string][]string)}
		for _, l := range lists {
			if err := p.print(l); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
	var out strings.Builder
	p := watchPrinter[api.GPU]{streamPrinter: newStreamPrinter(&out, &output.Format{Kind: "json"}, &gpuTable), rows: make(map[string][]string)}
	for _, l := range lists {
		if err := p.print(l); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n}\n"); n != 4 || strings.HasPrefix(out.String(), "[") {
		t.Errorf("%d objects in\n%s", n, out.String())
	}
}
