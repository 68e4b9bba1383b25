package nova

import (
	"crypto/sha1"
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// The resource classes of a GPU.
const (
	share  = "CUSTOM_VGPUD_SHARE"
	memory = "CUSTOM_VGPUD_MEMORY_MIB"
)

// provider is a resource provider.
type provider struct {
	UUID       string `json:"uuid"`
	Name       string `json:"name"`
	Parent     string `json:"parent_provider_uuid,omitempty"`
	Generation int    `json:"generation"`
}

// inventory is what a provider has of a resource class.
type inventory struct {
	Total    int     `json:"total"`
	Reserved int     `json:"reserved"`
	Min      int     `json:"min_unit"`
	Max      int     `json:"max_unit"`
	Step     int     `json:"step_size"`
	Ratio    float64 `json:"allocation_ratio"`
}

// inventories is the body of a change of a provider's inventories.
type inventories struct {
	Generation  int                  `json:"resource_provider_generation"`
	Inventories map[string]inventory `json:"inventories"`
}

// gpuInventories returns the inventories of a GPU with 16 GiB, of which so many shares are not to
// be given to instances.
func gpuInventories(generation, reserved int) inventories {
	return inventories{generation, map[string]inventory{
		share:  {Total: 100, Reserved: reserved, Min: 1, Max: 100, Step: 1, Ratio: 1},
		memory: {Total: 16384, Reserved: 512, Min: 256, Max: 15872, Step: 256, Ratio: 1},
	}}
}

// providerUUID returns the UUID of a GPU's provider.
func providerUUID(node, gpu string) string {
	namespace := []byte{0x6f, 0x0f, 0x8a, 0x52, 0x1c, 0x39, 0x5d, 0x0b, 0x9b, 0x0e, 0x2b, 0x7d, 0x1d, 0x6c, 0x9a, 0x41}
	h := sha1.Sum(append(namespace, node+"/"+gpu...))
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// nodeOf returns the provider of a host's compute node.
func nodeOf(tb testing.TB, c *client, host string) provider {
	tb.Helper()
	var found struct {
		Providers []provider `json:"resource_providers"`
	}
	until(tb, "the resource provider of "+host, func() error {
		c.must(http.MethodGet, placementURL+"/resource_providers?name="+url.QueryEscape(host), nil, &found)
		if len(found.Providers) != 1 {
			return fmt.Errorf("there are %d providers of the name", len(found.Providers))
		}
		return nil
	})
	return found.Providers[0]
}

// addGPUs gives a host two GPUs, as vgpu-placement would, and returns their providers.
func addGPUs(tb testing.TB, c *client, host string) []provider {
	tb.Helper()
	node := nodeOf(tb, c, host)
	for _, path := range []string{"/resource_classes/" + share, "/resource_classes/" + memory, "/traits/CUSTOM_VGPUD", "/traits/CUSTOM_VGPUD_SOFTGPU"} {
		c.must(http.MethodPut, placementURL+path, nil, nil)
	}
	var gpus []provider
	for _, gpu := range []string{"gpu0", "gpu1"} {
		gpus = append(gpus, postGPU(tb, c, node, gpu))
	}
	return gpus
}

// postGPU adds a GPU to a compute node, as vgpu-placement would.
func postGPU(tb testing.TB, c *client, node provider, gpu string) provider {
	tb.Helper()
	p := provider{UUID: providerUUID(node.UUID, gpu), Name: node.Name + "_vgpud_" + gpu, Parent: node.UUID}
	at := placementURL + "/resource_providers/" + p.UUID
	c.must(http.MethodPost, placementURL+"/resource_providers", map[string]string{"name": p.Name, "uuid": p.UUID, "parent_provider_uuid": p.Parent}, &p)
	c.must(http.MethodPut, at+"/inventories", gpuInventories(p.Generation, 0), nil)
	c.must(http.MethodPut, at+"/traits", map[string]any{"resource_provider_generation": p.Generation + 1, "traits": []string{"CUSTOM_VGPUD", "CUSTOM_VGPUD_SOFTGPU"}}, nil)
	return p
}

// reserve keeps so many shares of a GPU from instances.
func reserve(tb testing.TB, c *client, gpu provider, shares int) {
	tb.Helper()
	var now inventories
	at := placementURL + "/resource_providers/" + gpu.UUID + "/inventories"
	c.must(http.MethodGet, at, nil, &now)
	c.must(http.MethodPut, at, gpuInventories(now.Generation, shares), nil)
}
