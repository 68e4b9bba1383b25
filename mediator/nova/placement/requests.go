package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceclasses"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/traits"

	"vgpud/mediator/api"
	"vgpud/mediator/nova"
)

// shown returns a text of Placement's on one line of bounded length.
func shown(s string) string { return api.CleanText(strings.Join(strings.Fields(s), " ")) }

// ask calls f with a client of Placement and a time limit.
func ask[T any](ctx context.Context, c *Client, doing string, f func(ctx context.Context, s *gophercloud.ServiceClient) (T, error)) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	s, err := c.connect(ctx)
	if err != nil {
		return v, fmt.Errorf("%s: %w", doing, err)
	}
	if v, err = f(ctx, s); err != nil {
		return v, c.explain(doing, err)
	}
	return v, nil
}

// Tree returns the providers in the tree of a root, without their inventories and traits.
func (c *Client) Tree(ctx context.Context, root string) ([]nova.Provider, error) {
	return c.list(ctx, "read the providers of compute node "+root, resourceproviders.ListOpts{InTree: root})
}

// Named returns the provider with a name. The error is ErrNotFound if there is none.
func (c *Client) Named(ctx context.Context, name string) (nova.Provider, error) {
	all, err := c.list(ctx, fmt.Sprintf("look for the compute node %.100q", name), resourceproviders.ListOpts{Name: name})
	if err != nil {
		return nova.Provider{}, err
	}
	for _, p := range all {
		if p.Name == name && p.Parent == "" {
			return p, nil
		}
	}
	return nova.Provider{}, fmt.Errorf("no compute node is named %.100q in Placement: start nova-compute on this host, and set `host` to the name that `openstack hypervisor list` shows: %w", name, ErrNotFound)
}

func (c *Client) list(ctx context.Context, doing string, o resourceproviders.ListOpts) ([]nova.Provider, error) {
	found, err := ask(ctx, c, doing, func(ctx context.Context, s *gophercloud.ServiceClient) ([]resourceproviders.ResourceProvider, error) {
		page, err := resourceproviders.List(s, o).AllPages(ctx)
		if err != nil {
			return nil, err
		}
		return resourceproviders.ExtractResourceProviders(page)
	})
	if err != nil {
		return nil, err
	}
	all := make([]nova.Provider, 0, len(found))
	for _, p := range found {
		q := nova.Provider{UUID: p.UUID, Name: p.Name, Parent: p.ParentProviderUUID, Generation: p.Generation}
		if err := q.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", doing, ErrNonsense, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// Read returns a provider with its inventories, traits and generation as they are now. Its other
// fields are p's.
func (c *Client) Read(ctx context.Context, p nova.Provider) (nova.Provider, error) {
	doing := "read provider " + p.UUID
	inventories, err := ask(ctx, c, doing, func(ctx context.Context, s *gophercloud.ServiceClient) (*resourceproviders.ResourceProviderInventories, error) {
		return resourceproviders.GetInventories(ctx, s, p.UUID).Extract()
	})
	if err != nil {
		return p, err
	}
	// A change between the two answers changes the generation, so that the older one is refused later.
	traits, err := ask(ctx, c, doing, func(ctx context.Context, s *gophercloud.ServiceClient) (*resourceproviders.ResourceProviderTraits, error) {
		return resourceproviders.GetTraits(ctx, s, p.UUID).Extract()
	})
	if err != nil {
		return p, err
	}
	p.Generation = min(inventories.ResourceProviderGeneration, traits.ResourceProviderGeneration)
	p.Traits = traits.Traits
	p.Inventories = make(map[string]nova.Inventory, len(inventories.Inventories))
	for class, i := range inventories.Inventories {
		p.Inventories[class] = nova.Inventory(nova.Inventory{
			Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit, StepSize: i.StepSize, AllocationRatio: i.AllocationRatio,
		})
	}
	if err := p.Check(); err != nil {
		return p, fmt.Errorf("%s: %w: %w", doing, ErrNonsense, err)
	}
	return p, nil
}

// Allocation returns what a consumer, such as an instance, has of each provider; nothing if it is not
// known.
func (c *Client) Allocation(ctx context.Context, consumer string) (nova.Allocation, error) {
	if err := api.CheckUUID(consumer); err != nil {
		return nil, fmt.Errorf("ask for an allocation: %w", err) // it becomes part of a URL
	}
	a, err := ask(ctx, c, "read the allocation of "+consumer, func(ctx context.Context, s *gophercloud.ServiceClient) (*allocations.Allocations, error) {
		return allocations.Get(ctx, s, consumer).Extract()
	})
	if err != nil {
		return nil, err
	}
	if a.Allocations == nil {
		return nil, fmt.Errorf("read the allocation of %s: %w: it names no allocations", consumer, ErrNonsense)
	}
	all := make(nova.Allocation, len(a.Allocations))
	for id, p := range a.Allocations {
		if err := api.CheckUUID(id); err != nil {
			return nil, fmt.Errorf("read the allocation of %s: %w: a provider's %w", consumer, ErrNonsense, err)
		}
		all[id] = p.Resources
	}
	return all, nil
}

// Consumers returns who has allocations on a provider, sorted.
func (c *Client) Consumers(ctx context.Context, provider string) ([]string, error) {
	a, err := ask(ctx, c, "read the allocations on provider "+provider, func(ctx context.Context, s *gophercloud.ServiceClient) (*resourceproviders.ResourceProviderAllocations, error) {
		return resourceproviders.GetAllocations(ctx, s, provider).Extract()
	})
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(a.Allocations)), nil
}

// Usages returns how much of each resource class of a provider is allocated, and its generation.
func (c *Client) Usages(ctx context.Context, provider string) (used map[string]int, generation int, err error) {
	doing := "read what is used of provider " + provider
	u, err := ask(ctx, c, doing, func(ctx context.Context, s *gophercloud.ServiceClient) (*resourceproviders.ResourceProviderUsage, error) {
		return resourceproviders.GetUsages(ctx, s, provider).Extract()
	})
	if err != nil {
		return nil, 0, err
	}
	for class, n := range u.Usages {
		if n < 0 {
			return nil, 0, fmt.Errorf("%s: %w: %d of %.60q", doing, ErrNonsense, n, class)
		}
	}
	return u.Usages, u.ResourceProviderGeneration, nil
}

// DeclareClass makes a resource class known; it may be so already.
func (c *Client) DeclareClass(ctx context.Context, class string) error {
	_, err := ask(ctx, c, "declare resource class "+class, func(ctx context.Context, s *gophercloud.ServiceClient) (struct{}, error) {
		return struct{}{}, resourceclasses.Update(ctx, s, class).ExtractErr()
	})
	return err
}

// DeclareTrait makes a trait known; it may be so already.
func (c *Client) DeclareTrait(ctx context.Context, trait string) error {
	_, err := ask(ctx, c, "declare trait "+trait, func(ctx context.Context, s *gophercloud.ServiceClient) (struct{}, error) {
		return struct{}{}, traits.Create(ctx, s, trait).ExtractErr()
	})
	return err
}

// Do carries out a request and returns the provider's generation afterwards.
func (c *Client) Do(ctx context.Context, r nova.Request) (generation int, err error) {
	return ask(ctx, c, r.Kind.String()+" of provider "+r.Provider, func(ctx context.Context, s *gophercloud.ServiceClient) (int, error) {
		switch r.Kind {
		case nova.Create:
			p, err := resourceproviders.Create(ctx, s, resourceproviders.CreateOpts{Name: r.Name, UUID: r.Provider, ParentProviderUUID: r.Parent}).Extract()
			return p.Generation, err
		case nova.Rename:
			p, err := resourceproviders.Update(ctx, s, r.Provider, resourceproviders.UpdateOpts{Name: &r.Name}).Extract()
			return p.Generation, err
		case nova.SetInventories:
			p, err := resourceproviders.UpdateInventories(ctx, s, r.Provider, inventoriesOf(r)).Extract()
			return p.ResourceProviderGeneration, err
		case nova.SetTraits:
			p, err := resourceproviders.UpdateTraits(ctx, s, r.Provider, resourceproviders.UpdateTraitsOpts{
				ResourceProviderGeneration: r.Generation, Traits: r.Traits,
			}).Extract()
			return p.ResourceProviderGeneration, err
		case nova.Delete:
			return 0, resourceproviders.Delete(ctx, s, r.Provider).ExtractErr()
		}
		return 0, fmt.Errorf("no request %d", r.Kind)
	})
}

func inventoriesOf(r nova.Request) resourceproviders.UpdateInventoriesOpts {
	o := resourceproviders.UpdateInventoriesOpts{ResourceProviderGeneration: r.Generation, Inventories: make(map[string]resourceproviders.Inventory, len(r.Inventories))}
	for class, i := range r.Inventories {
		o.Inventories[class] = resourceproviders.Inventory{
			Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit, StepSize: i.StepSize, AllocationRatio: i.AllocationRatio,
		}
	}
	return o
}
