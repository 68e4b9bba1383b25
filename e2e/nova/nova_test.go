package nova

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestPlacement gives two hosts two GPUs each and has Nova place instances on them.
func TestPlacement(t *testing.T) {
	b := startBed(t, 3, 0)
	admin := newClient(b, "admin", "admin")
	by := packages(t, b)
	recordRefusals(t, b, by)

	gpus := slices.Concat(addGPUs(t, admin, "fake1"), addGPUs(t, admin, "fake2"))
	recordProviders(t, admin, "fake1", by)
	recordCandidates(t, admin, gpus, by)

	disk := image(t, admin, "empty", make([]byte, 1<<16), nil)
	quarter, half, most := flavor(t, admin, 25, 1024), flavor(t, admin, 50, 2048), flavor(t, admin, 60, 2048)

	// Four of 60 fill a GPU each; a fifth finds none.
	on := make(map[string]server) // by GPU
	for i := range 4 {
		s := boot(t, admin, fmt.Sprintf("most%d", i), most, disk)
		active(t, s)
		gpu := gpuOf(t, admin, s, gpus, 60, 2048)
		if other, taken := on[gpu.UUID]; taken {
			t.Errorf("%s has instances %s and %s of 60 shares each", gpu.Name, other.ID, s.ID)
		}
		on[gpu.UUID] = s
	}
	fifth := boot(t, admin, "fifth", most, disk)
	noHost(t, fifth)
	remove(t, admin, fifth.ID)

	// Beside 60 shares there is room for 25, not for 50.
	s := boot(t, admin, "quarter", quarter, disk)
	active(t, s)
	gpuOf(t, admin, s, gpus, 25, 1024)
	recordAllocation(t, admin, on[other(t, admin, s, gpus).UUID], other(t, admin, s, gpus), userID(t, admin), by)
	tooMany := boot(t, admin, "half", half, disk)
	noHost(t, tooMany)

	checkRights(t, newClient(b, "vgpud", "service"), "fake3", s)
	for _, p := range addedTo(t, admin, "fake3") {
		admin.must(http.MethodDelete, placementURL+"/resource_providers/"+p, nil, nil)
	}

	for _, id := range []string{tooMany.ID, s.ID} {
		remove(t, admin, id)
	}
	for _, s := range on {
		remove(t, admin, s.ID)
		if left := allocated(t, admin, s.ID); len(left) > 0 {
			t.Errorf("instance %s is gone, and its allocation is not: %v", s.ID, left)
		}
	}

	// A GPU that is sick or drained has all of its shares reserved, and is given nothing new.
	// Instances keep the shares that it has given.
	before := boot(t, admin, "before", half, disk)
	active(t, before)
	sick := gpuOf(t, admin, before, gpus, 50, 2048)
	reserve(t, admin, sick, 100)
	for i := range 3 {
		s := boot(t, admin, fmt.Sprintf("after%d", i), most, disk)
		active(t, s)
		if gpu := gpuOf(t, admin, s, gpus, 60, 2048); gpu.UUID == sick.UUID {
			t.Errorf("%s has all of its shares reserved, and was given instance %s", gpu.Name, s.ID)
		}
	}
	noHost(t, boot(t, admin, "none", half, disk))
	if got := settle(t, admin, before.ID); got.Status != "ACTIVE" {
		t.Errorf("instance %s, which was there before the GPU was sick, is %s", got.ID, got.Status)
	}
	gpuOf(t, admin, before, gpus, 50, 2048)
	reserve(t, admin, sick, 0)
	s = boot(t, admin, "well", half, disk)
	active(t, s)
	if gpu := gpuOf(t, admin, s, gpus, 50, 2048); gpu.UUID != sick.UUID {
		t.Errorf("only %s had room for 50 shares, and %s was given", sick.Name, gpu.Name)
	}
}

// gpuOf returns the GPU that an instance was given, and fails the test unless both amounts are of
// this one GPU, and the GPU is of the instance's host.
func gpuOf(t *testing.T, c *client, s server, gpus []provider, shares, mib int) provider {
	t.Helper()
	a := allocated(t, c, s.ID)
	var found []provider
	for _, gpu := range gpus {
		r, ok := a[gpu.UUID]
		if !ok {
			continue
		}
		found = append(found, gpu)
		if len(r) != 2 || r[share] != shares || r[memory] != mib {
			t.Errorf("instance %s was given %v of %s, want %d shares and %d MiB", s.ID, r, gpu.Name, shares, mib)
		}
		if _, ok := a[gpu.Parent]; !ok || nodeOf(t, c, s.Host).UUID != gpu.Parent {
			t.Errorf("instance %s on %s was given %s of another host: %v", s.ID, s.Host, gpu.Name, a)
		}
	}
	if len(found) != 1 {
		t.Fatalf("instance %s was given %v, want what one GPU has", s.ID, a)
	}
	return found[0]
}

// other returns the first of the GPUs that an instance was not given.
func other(t *testing.T, c *client, s server, gpus []provider) provider {
	t.Helper()
	a := allocated(t, c, s.ID)
	i := slices.IndexFunc(gpus, func(p provider) bool { _, ok := a[p.UUID]; return !ok })
	return gpus[i]
}

// addedTo returns the UUIDs of the providers under a host's compute node.
func addedTo(tb testing.TB, c *client, host string) (ids []string) {
	tb.Helper()
	node := nodeOf(tb, c, host)
	var found struct {
		Providers []provider `json:"resource_providers"`
	}
	c.must(http.MethodGet, placementURL+"/resource_providers?in_tree="+node.UUID, nil, &found)
	for _, p := range found.Providers {
		if p.UUID != node.UUID {
			ids = append(ids, p.UUID)
		}
	}
	return ids
}

// userID returns the user that a client is.
func userID(t *testing.T, c *client) string {
	t.Helper()
	var me struct {
		Users []struct {
			ID string `json:"id"`
		} `json:"users"`
	}
	c.must(http.MethodGet, keystoneURL+"/users?name=admin", nil, &me)
	return me.Users[0].ID
}

// packages names the versions of what answers.
func packages(t *testing.T, b *bed) string {
	t.Helper()
	out, err := b.command("versions").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out[:len(out)-1])
}
