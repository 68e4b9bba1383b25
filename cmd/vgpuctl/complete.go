package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/fairshare"
	"vgpud/mediator/api"
)

// completeVMs completes the names of guests.
func completeVMs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).VMs, vmName)
}

// completeGPUs completes the names of GPUs.
func completeGPUs(o *options) cobra.CompletionFunc {
	return completeNames(o, (*api.Client).GPUs, gpuName)
}

// completeNames completes the first argument by names that the daemon returns.
func completeNames[T any](o *options, all func(*api.Client, context.Context) ([]T, error), name func(T) string) cobra.CompletionFunc {
	several := completeSeveral(o, all, name)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return several(c, args, word)
	}
}

// completeSeveral completes every argument by names that were not given yet.
func completeSeveral[T any](o *options, all func(*api.Client, context.Context) ([]T, error), name func(T) string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		items, err := ask(c, o, all)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, it := range items {
			if !slices.Contains(args, name(it)) {
				names = append(names, name(it))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the values of a flag by a function, which must not depend on arguments.
func completeFlag(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	byFlag := func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return f(c, nil, word)
	}
	if err := c.RegisterFlagCompletionFunc(flag, byFlag); err != nil {
		panic(err)
	}
}

// completeAnyGPU completes the names of GPUs, and the word for any of them.
func completeAnyGPU(o *options) cobra.CompletionFunc {
	gpus := completeGPUs(o)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		names, d := gpus(c, args, word)
		return append(names, api.AnyGPU), d &^ cobra.ShellCompDirectiveError
	}
}

// completeSettings completes a guest's name, then keys that were not given yet, and their values.
func completeSettings(o *options) cobra.CompletionFunc {
	vms := completeVMs(o)
	return func(c *cobra.Command, args []string, word string) (all []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			return vms(c, args, word)
		}
		if key, _, ok := strings.Cut(word, "="); ok {
			for _, s := range settings {
				for _, value := range s.like {
					if s.key == key {
						all = append(all, key+"="+value)
					}
				}
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		}
		for _, s := range settings {
			given := func(arg string) bool { return strings.HasPrefix(arg, s.key+"=") }
			if !slices.ContainsFunc(args[1:], given) {
				all = append(all, s.key+"=")
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completePolicy completes a GPU's name and then the policies.
func completePolicy(o *options) cobra.CompletionFunc {
	gpus := completeGPUs(o)
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return gpus(c, args, word)
		}
		names := fairshare.Names()
		for i, name := range names {
			names[i] = "policy=" + name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
