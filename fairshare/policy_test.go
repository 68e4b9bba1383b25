package fairshare_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

func TestNew(t *testing.T) {
	if diff := cmp.Diff([]string{"dfq", "dfq-loga", "dprr", "ffs", "fifo", "hpf", "loga", "loga-cl", "loga-spans", "neon", "none", "piv", "reorder"}, fairshare.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := fairshare.New("fair", fairshare.Options{}); err == nil || !strings.Contains(err.Error(), `"fair"`) {
		t.Errorf("unknown policy: %v, want an error that names it", err)
	}
}

// TestNoneIsUnfair tests that without a policy that suspends guests, long kernels win (LoGA figure
// 2).
func TestNoneIsUnfair(t *testing.T) {
	s := newSim("none", true, 1, &simGuest{weight: 4, length: 1 * ms}, &simGuest{weight: 1, length: 4 * ms})
	s.guests[0].suspended = true // left by an earlier policy
	used, _ := s.use(s.rounds(1000 * ms))
	if diff := cmp.Diff([]float64{0.2, 0.8}, used, cmpopts.EquateApprox(0, 0.02)); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if s.suspensions > 0 {
		t.Errorf("%d suspensions", s.suspensions)
	}
}

// TestPrintedRuleFails tests that LoGA's rule as printed charges a suspended guest for quiet phases
// in which it did not run. With equal weights and kernels of 1 ms and 0.5 ms, the first guest gets
// only what it uses in polling phases. Weighted dfq halves the GPU.
func TestPrintedRuleFails(t *testing.T) {
	share := func(policy string) float64 {
		s := newSim(policy, false, 1, &simGuest{weight: 1, length: 1 * ms}, &simGuest{weight: 1, length: 500 * us})
		used, _ := s.use(s.rounds(10_000 * ms))
		return used[0]
	}
	if got := share("dfq-loga"); math.Abs(got-0.15) > 0.03 {
		t.Errorf("dfq-loga gives the longer kernels %.3f, want about 0.15", got)
	}
	if got := share("loga-cl"); got > 0.2 {
		t.Errorf("loga-cl gives the longer kernels %.3f, want as little as dfq-loga", got)
	}
	if got := share("dfq"); math.Abs(got-0.5) > 0.01 {
		t.Errorf("dfq gives the longer kernels %.3f, want 0.5", got)
	}
}

// TestLogaCLMistakesLengthForUse tests that by mean command length a guest with long commands looks
// like one that uses the GPU a lot (LoGA §5.5).
func TestLogaCLMistakesLengthForUse(t *testing.T) {
	suspended := func(policy string) (rounds int) {
		s := newSim(policy, false, 1,
			&simGuest{weight: 1, length: 1 * ms, think: 4 * ms}, // a fifth of the time
			&simGuest{weight: 1, length: 100 * us})
		for range 100 {
			s.round()
			s.run(s.now + simPoll)
			s.phase(fairshare.PollPhase, simPoll, simPoll, true)
			if s.guests[0].suspended {
				rounds++
			}
		}
		return rounds
	}
	if got := suspended("loga-cl"); got < 50 {
		t.Errorf("loga-cl suspended the guest with few, long kernels in %d rounds of 100", got)
	}
	if got := suspended("dfq"); got > 0 {
		t.Errorf("dfq suspended the guest with few, long kernels in %d rounds of 100", got)
	}
}

func TestEntitlement(t *testing.T) {
	tests := []struct {
		name             string
		weights, demands []float64
		want             []float64
	}{
		{name: "nobody", want: []float64{}},
		{name: "by weight", weights: []float64{1, 2, 4}, demands: []float64{1, 1, 1}, want: []float64{1. / 7, 2. / 7, 4. / 7}},
		{name: "small demands are met", weights: []float64{1, 1, 2}, demands: []float64{0.1, 1, 1}, want: []float64{0.1, 0.3, 0.6}},
		{name: "in turn", weights: []float64{1, 1, 1}, demands: []float64{0.2, 0.35, 1}, want: []float64{0.2, 0.35, 0.45}},
		{name: "all met", weights: []float64{1, 5}, demands: []float64{0.3, 0.2}, want: []float64{0.3, 0.2}},
		{name: "no weight, nothing", weights: []float64{0, 1}, demands: []float64{1, 1}, want: []float64{0, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := fairshare.Entitlement(test.weights, test.demands, nil)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("entitlement (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEntitlementProperties tests that water-filling gives no guest more than it demands, wastes
// nothing that is demanded, and leaves unsatisfied guests at one level per weight.
func TestEntitlementProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "guests")
		weights := rapid.SliceOfN(rapid.Float64Range(0.1, 100), n, n).Draw(t, "weights")
		demands := rapid.SliceOfN(rapid.Float64Range(0, 1), n, n).Draw(t, "demands")
		got := fairshare.Entitlement(weights, demands, nil)
		var sum, want, level float64
		for i := range got {
			sum, want = sum+got[i], want+demands[i]
			if got[i] > demands[i]+1e-9 {
				t.Errorf("guest %d gets %v of a demand of %v", i, got[i], demands[i])
			}
			level = max(level, got[i]/weights[i])
		}
		if math.Abs(sum-min(want, 1)) > 1e-9 {
			t.Errorf("%v handed out, want %v", sum, min(want, 1))
		}
		for i := range got {
			if got[i] < demands[i]-1e-9 && got[i]/weights[i] < level-1e-9 {
				t.Errorf("guest %d is unsatisfied at %v per weight, another has %v", i, got[i]/weights[i], level)
			}
		}
	})
}

// TestPure tests that the policies and the duration predictor are pure: they import nothing that
// has effects, read no clock, wait for nothing, and start no goroutine.
func TestPure(t *testing.T) {
	allowed := map[string]bool{`"cmp"`: true, `"fmt"`: true, `"maps"`: true, `"math"`: true, `"slices"`: true, `"strings"`: true, `"time"`: true,
		`"container/list"`: true, `"vgpud/fairshare/quota"`: true, `"gonum.org/v1/gonum/mat"`: true}
	clock := map[string]bool{"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "Tick": true,
		"NewTimer": true, "NewTicker": true, "Sleep": true}
	var names []string
	for _, dir := range []string{".", "duration", "quota"} {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.GoFiles {
			names = append(names, filepath.Join(dir, name))
		}
	}
	files := token.NewFileSet()
	for _, name := range names {
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				if !allowed[n.Path.Value] {
					t.Errorf("%s imports %s", files.Position(n.Pos()), n.Path.Value)
				}
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or a channel", files.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && clock[n.Sel.Name] {
					t.Errorf("%s: time.%s", files.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	guests := make([]*simGuest, 64)
	for i := range guests {
		guests[i] = &simGuest{weight: float64(1 + i%4), length: 100 * us}
	}
	s := newSim("dfq", true, 1, guests...)
	s.rounds(100 * ms)()
	p, st := s.policy, s.state
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(0, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: simPoll, Watched: simPoll}, st)
	}
}
