package nova

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// The names that a recording has for what differs from run to run.
const (
	recordedNode     = "11111111-1111-4111-8111-111111111111"
	recordedInstance = "22222222-2222-4222-8222-222222222222"
	recordedUser     = "33333333333343338333333333333333"
	recordedProject  = "44444444444444448444444444444444"
)

// recordProviders records how a GPU's provider comes, changes and goes.
func recordProviders(tb testing.TB, c *client, host, by string) {
	node := nodeOf(tb, c, host)
	r := &recorder{client: c}
	r.call(node.UUID, recordedNode)
	gpu := providerUUID(node.UUID, "gpu7")
	r.call(gpu, providerUUID(recordedNode, "gpu7"))
	at := "/resource_providers/" + gpu
	made := map[string]string{"name": host + "_vgpud_gpu7", "uuid": gpu, "parent_provider_uuid": node.UUID}

	r.send("the versions", http.MethodGet, "/", nil)
	r.send("the compute node", http.MethodGet, "/resource_providers?name="+url.QueryEscape(host), nil)
	r.send("a host without a compute node", http.MethodGet, "/resource_providers?name=nobody", nil)
	r.send("a resource class that is there", http.MethodPut, "/resource_classes/"+share, nil)
	r.send("a trait that is there", http.MethodPut, "/traits/CUSTOM_VGPUD", nil)
	r.send("a trait that is not ours to name", http.MethodPut, "/traits/VGPUD", nil)
	r.send("a new GPU", http.MethodPost, "/resource_providers", made)
	r.send("the same again", http.MethodPost, "/resource_providers", made)
	r.send("a GPU whose parent is unknown", http.MethodPost, "/resource_providers", map[string]string{"name": "x", "uuid": "55555555-5555-4555-8555-555555555555", "parent_provider_uuid": "66666666-6666-4666-8666-666666666666"})
	r.send("no inventories yet", http.MethodGet, at+"/inventories", nil)
	r.send("inventories", http.MethodPut, at+"/inventories", gpuInventories(0, 0))
	r.send("inventories, with a generation that is past", http.MethodPut, at+"/inventories", gpuInventories(0, 10))
	r.send("an unknown class", http.MethodPut, at+"/inventories", inventories{1, map[string]inventory{"CUSTOM_VGPUD_NONE": {Total: 1, Min: 1, Max: 1, Step: 1, Ratio: 1}}})
	r.send("more reserved than there is", http.MethodPut, at+"/inventories", gpuInventories(1, 101))
	r.send("traits", http.MethodPut, at+"/traits", map[string]any{"resource_provider_generation": 1, "traits": []string{"CUSTOM_VGPUD", "CUSTOM_VGPUD_SOFTGPU"}})
	r.send("traits, with a generation that is past", http.MethodPut, at+"/traits", map[string]any{"resource_provider_generation": 1, "traits": []string{"CUSTOM_VGPUD"}})
	r.send("an unknown trait", http.MethodPut, at+"/traits", map[string]any{"resource_provider_generation": 2, "traits": []string{"CUSTOM_VGPUD_NONE"}})
	r.send("all of the shares reserved", http.MethodPut, at+"/inventories", gpuInventories(2, 100))
	r.send("the provider", http.MethodGet, at, nil)
	r.send("its inventories", http.MethodGet, at+"/inventories", nil)
	r.send("its traits", http.MethodGet, at+"/traits", nil)
	r.send("its name changes", http.MethodPut, at, map[string]string{"name": "renamed_vgpud_gpu7", "parent_provider_uuid": node.UUID})
	r.send("what it has given", http.MethodGet, at+"/allocations", nil)
	r.send("it goes", http.MethodDelete, at, nil)
	r.send("it goes again", http.MethodDelete, at, nil)
	r.send("it is gone", http.MethodGet, at, nil)
	r.check(tb, "placement-providers.json", by)
}

// recordAllocation records what Placement says of an instance, of a flavor of 60 shares, that runs,
// and of the GPU that it was given.
func recordAllocation(tb testing.TB, c *client, s server, gpu provider, user, by string) {
	var now inventories
	at := "/resource_providers/" + gpu.UUID
	c.must(http.MethodGet, placementURL+at+"/inventories", nil, &now)
	r := &recorder{client: c, changing: true}
	r.call(gpu.Parent, recordedNode)
	r.call(gpu.UUID, providerUUID(recordedNode, "gpu0"))
	r.call(gpu.Name, "fake1_vgpud_gpu0")
	r.call(s.ID, recordedInstance)
	r.call(c.project, recordedProject)
	r.call(user, recordedUser)
	r.send("an instance's allocation", http.MethodGet, "/allocations/"+s.ID, nil)
	r.send("an instance that has none", http.MethodGet, "/allocations/77777777-7777-4777-8777-777777777777", nil)
	r.send("no instance", http.MethodGet, "/allocations/none", nil)
	r.send("what the GPU has given", http.MethodGet, at+"/allocations", nil)
	r.send("how much of it", http.MethodGet, at+"/usages", nil)
	r.send("the GPU goes", http.MethodDelete, at, nil)
	r.send("its inventories go", http.MethodPut, at+"/inventories", inventories{now.Generation, map[string]inventory{}})
	smaller := gpuInventories(now.Generation, 0)
	smaller.Inventories[share] = inventory{Total: 50, Min: 1, Max: 50, Step: 1, Ratio: 1}
	r.send("it has less than it has given", http.MethodPut, at+"/inventories", smaller)
	r.send("all of its shares are reserved, also those that it has given", http.MethodPut, at+"/inventories", gpuInventories(now.Generation+1, 100))
	r.send("what an instance was given stays", http.MethodGet, "/allocations/"+s.ID, nil)
	r.check(tb, "placement-allocation.json", by)
	reserve(tb, c, gpu, 0)
}

// recordCandidates records where Placement says that a flavor of 60 shares fits, on the first two of
// the GPUs, and with the first one's shares all reserved.
func recordCandidates(tb testing.TB, c *client, gpus []provider, by string) {
	r := &recorder{client: c}
	tree := gpus[0].Parent
	r.call(tree, recordedNode)
	r.call(gpus[0].UUID, providerUUID(recordedNode, "gpu0"))
	r.call(gpus[1].UUID, providerUUID(recordedNode, "gpu1"))
	ask := func(about string, shares, mib int) {
		r.send(about, http.MethodGet, fmt.Sprintf("/allocation_candidates?resources1=%s:%d,%s:%d&required1=CUSTOM_VGPUD_SOFTGPU&in_tree1=%s", share, shares, memory, mib, tree), nil)
	}
	ask("60 shares fit on both GPUs", 60, 2048)
	ask("101 shares fit nowhere", 101, 2048)
	ask("10000 MiB in steps of 256 are none", 60, 10000)
	reserve(tb, c, gpus[0], 100)
	ask("the first GPU has all of its shares reserved", 60, 2048)
	reserve(tb, c, gpus[1], 100)
	ask("both have", 60, 2048)
	reserve(tb, c, gpus[0], 0)
	reserve(tb, c, gpus[1], 0)
	r.check(tb, "placement-candidates.json", by)
}

// recordRefusals records what users without rights are told.
func recordRefusals(tb testing.TB, b *bed, by string) {
	nobody, tenant := newClient(b, "demo", "demo"), newClient(b, "demo", "demo")
	nobody.token = "none"
	r := &recorder{client: nobody}
	r.send("a token that is none", http.MethodGet, "/resource_providers?name=fake1", nil)
	r.client = tenant
	r.send("a tenant's token", http.MethodGet, "/resource_providers?name=fake1", nil)
	r.check(tb, "placement-refusals.json", by)
}

// checkRights checks that the role of deploy/nova/placement-policy.yaml may do what vgpu-placement
// and the hook need, and no more.
func checkRights(tb testing.TB, agent *client, host string, s server) {
	addGPUs(tb, agent, host)
	if got := allocated(tb, agent, s.ID); len(got) == 0 {
		tb.Error("vgpud's user sees no allocation of an instance that runs")
	}
	for _, err := range []error{
		agent.refused(http.StatusForbidden, http.MethodDelete, placementURL+"/allocations/"+s.ID, nil),
		agent.refused(http.StatusForbidden, http.MethodPut, placementURL+"/allocations/"+s.ID, map[string]any{
			"allocations":         map[string]any{nodeOf(tb, agent, host).UUID: map[string]any{"resources": map[string]int{"VCPU": 1}}},
			"consumer_generation": 1, "project_id": agent.project, "user_id": "x",
		}),
		agent.refused(http.StatusForbidden, http.MethodDelete, placementURL+"/resource_classes/"+share, nil),
		agent.refused(http.StatusForbidden, http.MethodDelete, placementURL+"/traits/CUSTOM_VGPUD", nil),
		agent.refused(http.StatusForbidden, http.MethodGet, placementURL+fmt.Sprintf("/allocation_candidates?resources=%s:1", share), nil),
	} {
		if err != nil {
			tb.Error(err)
		}
	}
}
