package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vgpud/cmd/internal/ability"
)

// TestDoctorCluster has API servers that lack one thing each.
func TestDoctorCluster(t *testing.T) {
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: "node1"}}
	// allow answers all questions for rights but those for a verb.
	allow := func(c *fake.Clientset, but string) {
		c.PrependReactor("create", "selfsubjectaccessreviews", func(a kubetesting.Action) (bool, runtime.Object, error) {
			r, ok := a.(kubetesting.CreateAction).GetObject().(*authorization.SelfSubjectAccessReview)
			if !ok {
				t.Fatalf("%+v", a)
			}
			r.Status.Allowed = r.Spec.ResourceAttributes.Verb != but
			return true, r, nil
		})
	}
	for lacks, c := range map[string]*fake.Clientset{
		"":               fake.NewClientset(node),
		"node":           fake.NewClientset(),
		"rights":         fake.NewClientset(node),
		"shared devices": fake.NewClientset(node),
	} {
		switch lacks {
		case "rights":
			allow(c, "watch")
		case "shared devices":
			allow(c, "")
			c.PrependReactor("create", "resourceslices", func(a kubetesting.Action) (bool, runtime.Object, error) {
				s, ok := a.(kubetesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
				if !ok || len(a.(kubetesting.CreateActionImpl).CreateOptions.DryRun) != 1 {
					t.Fatalf("%+v", a)
				}
				s = s.DeepCopy()
				s.Spec.Devices[0].AllowMultipleAllocations = nil // as a server without the feature does
				return true, s, nil
			})
		default:
			allow(c, "")
		}
		var missing string
		for _, a := range cluster(t.Context(), config{Node: "node1"}, c) {
			if a.State != ability.Present {
				missing += a.Name
			}
			if a.State != ability.Present && (!a.Needed || a.What == "" || a.Do == "") {
				t.Errorf("%+v", a)
			}
		}
		if missing != lacks {
			t.Errorf("what lacks is %q, want %q", missing, lacks)
		}
	}
}

// TestDoctorOffer compares what a cluster has with what is to be offered.
func TestDoctorOffer(t *testing.T) {
	full, half := capacityPair{100, 8192}, capacityPair{50, 4096}
	for _, c := range []struct {
		has, want capacityPair
		why       string
		state     ability.State
	}{
		{full, full, "", ability.Present}, {half, full, "", ability.Absent}, {capacityPair{}, full, "", ability.Absent},
		{full, capacityPair{}, "it is cordoned", ability.Absent}, {capacityPair{}, capacityPair{}, "it is cordoned", ability.Present},
	} {
		if a := offered(c.has, c.want, c.why); a.State != c.state {
			t.Errorf("has %v, to be offered is %v: %+v", c.has, c.want, a)
		}
	}
}

// TestNoDaemon: an error for want of the daemon names what a user of this program can change.
func TestNoDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubernetes.yaml")
	if err := os.WriteFile(path, []byte("socket: /nonexistent/vgpud.sock\nnode: node1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "name its socket with `socket` in " + path + ": "
	root := newRoot()
	root.SetArgs([]string{"serve", "--dry-run", "--config", path})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("serve --dry-run says %v, want %q", err, want)
	}
	all := examine(t.Context(), path)
	if last := all[len(all)-1]; last.Name != "vgpud" || !strings.Contains(last.What, want) {
		t.Errorf("doctor says %+v, want %q", last, want)
	}
}
