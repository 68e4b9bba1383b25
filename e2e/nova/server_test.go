package nova

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// flavor makes a flavor with so many shares and MiB of one GPU.
func flavor(tb testing.TB, c *client, shares, mib int) (id string) {
	tb.Helper()
	id = fmt.Sprintf("vgpu.%d", shares)
	c.must(http.MethodPost, novaURL+"/flavors", map[string]any{"flavor": map[string]any{"id": id, "name": id, "ram": 128, "vcpus": 1, "disk": 0}}, nil)
	c.must(http.MethodPost, novaURL+"/flavors/"+id+"/os-extra_specs", map[string]any{"extra_specs": map[string]string{
		"resources_GPU:" + share: fmt.Sprint(shares), "resources_GPU:" + memory: fmt.Sprint(mib), "trait_GPU:CUSTOM_VGPUD_SOFTGPU": "required",
	}}, nil)
	return id
}

// image makes an image of given content.
func image(tb testing.TB, c *client, name string, content []byte, properties map[string]string) (id string) {
	tb.Helper()
	var made struct {
		ID string `json:"id"`
	}
	body := map[string]string{"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"}
	for k, v := range properties {
		body[k] = v
	}
	c.must(http.MethodPost, glanceURL+"/images", body, &made)
	c.must(http.MethodPut, glanceURL+"/images/"+made.ID+"/file", content, nil)
	return made.ID
}

// server is what Nova tells of an instance.
type server struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Host   string `json:"OS-EXT-SRV-ATTR:host"`
	Fault  struct {
		Message string `json:"message"`
	} `json:"fault"`
}

// order asks for an instance.
func order(tb testing.TB, c *client, name, flavor, image string) server {
	tb.Helper()
	var made struct{ Server server }
	c.must(http.MethodPost, novaURL+"/servers", map[string]any{"server": map[string]any{"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}}, &made)
	return made.Server
}

// boot asks for an instance and waits until it is ACTIVE or in ERROR.
func boot(tb testing.TB, c *client, name, flavor, image string) server {
	tb.Helper()
	return settle(tb, c, order(tb, c, name, flavor, image).ID)
}

// settle waits until an instance is in a state that it stays in.
func settle(tb testing.TB, c *client, id string) (s server) {
	tb.Helper()
	until(tb, "instance "+id, func() error {
		var got struct{ Server server }
		c.must(http.MethodGet, novaURL+"/servers/"+id, nil, &got)
		s = got.Server
		switch s.Status {
		case "ACTIVE", "ERROR", "SHUTOFF", "VERIFY_RESIZE":
			return nil
		}
		return errors.New("it is in the state " + s.Status)
	})
	return s
}

// noHost fails the test unless the scheduler found no host for an instance.
func noHost(tb testing.TB, s server) {
	tb.Helper()
	if s.Status != "ERROR" || !strings.Contains(s.Fault.Message, "No valid host was found") {
		tb.Errorf("instance %s is %s on %q: %q, want an error: no valid host", s.ID, s.Status, s.Host, s.Fault.Message)
	}
}

// active fails the test unless an instance runs.
func active(tb testing.TB, s server) {
	tb.Helper()
	if s.Status != "ACTIVE" {
		tb.Fatalf("instance %s is %s: %q, want ACTIVE", s.ID, s.Status, s.Fault.Message)
	}
}

// remove deletes an instance and waits until it is gone.
func remove(tb testing.TB, c *client, id string) {
	tb.Helper()
	c.must(http.MethodDelete, novaURL+"/servers/"+id, nil, nil)
	until(tb, "the end of instance "+id, func() error { return c.refused(http.StatusNotFound, http.MethodGet, novaURL+"/servers/"+id, nil) })
}

// allocations is what an instance was given, by provider and resource class.
type allocations map[string]map[string]int

// allocated returns what an instance was given.
func allocated(tb testing.TB, c *client, id string) allocations {
	tb.Helper()
	var got struct {
		Allocations map[string]struct {
			Resources map[string]int `json:"resources"`
		} `json:"allocations"`
	}
	c.must(http.MethodGet, placementURL+"/allocations/"+id, nil, &got)
	a := make(allocations)
	for p, r := range got.Allocations {
		a[p] = r.Resources
	}
	return a
}
