package main

import (
	"fmt"
	"path"
	"strings"
)

// triplet is the platform that the tests are built for.
const triplet = "x86_64-pc-linux-gnu"

// effectiveTargets are the properties that DejaGnu's selectors may ask for, as they are here: an
// x86-64 host with a GPU of NVIDIA's kind that has its own memory.
var effectiveTargets = map[string]bool{
	"offload_target_nvptx":          true,
	"offload_target_amdgcn":         false,
	"offload_device":                true,
	"offload_device_nvptx":          true,
	"offload_device_nonshared_as":   true,
	"offload_device_shared_as":      false,
	"offload_device_intel_mic":      false,
	"offload_device_any_intel_mic":  false,
	"openacc_nvidia_accel_present":  true,
	"openacc_nvidia_accel_selected": true,
	"openacc_radeon_accel_present":  false,
	"openacc_radeon_accel_selected": false,
	"openacc_host_selected":         false,
	"openacc_cuda":                  true,
	"openacc_cudart":                true,
	"openacc_cublas":                false,
	"__float128":                    true,
	"avx_runtime":                   true,
	"fd_truncate":                   true,
	"fpic":                          true,
	"ia32":                          false,
	"large_long_double":             true,
	"lp64":                          true,
	"lto":                           true,
	"run_expensive_tests":           false,
	"shared":                        true,
	"size32plus":                    true,
	"skip-all-targets":              false,
	"sse2_runtime":                  true,
	"sync_int_long":                 true,
	"this-really-should-fail":       false,
	"tls":                           true,
	"tls_runtime":                   true,
	"vect_simd_clones":              true,
	"weak_undefined":                true,
	"alias":                         true,
	"__OPTIMIZE__":                  true,
	"aarch64_tiny":                  false,
	"cas_char":                      true,
	"sync_char_short":               true,
	"pthread":                       true,
	"fopenmp":                       true,
	"dlopen":                        true,
	"nonpic":                        true,
	"c99_runtime":                   true,
	"non_strict_align":              true,
	"fortran_large_real":            true,
	"fortran_large_int":             true,
	"fortran_real_16":               true,
	"libatomic_available":           true,
}

// selects evaluates a target selector: a name, a pattern of a platform, or an expression of them.
// lang is "c", "c++" or "fortran". The word "target" or "xfail" before the selector is not part of
// it.
func selects(selector, lang string) (bool, error) {
	words, err := tclWords(selector)
	if err != nil {
		return false, err
	}
	return selectWords(words, lang)
}

func selectWords(words []string, lang string) (bool, error) {
	switch {
	case len(words) == 0:
		return true, nil
	case words[0] == "!":
		ok, err := selectWords(words[1:], lang)
		return !ok, err
	case len(words) == 1:
		return selectOne(words[0], lang)
	case words[1] == "&&" || words[1] == "||":
		if len(words) < 3 {
			return false, fmt.Errorf("selector %v: nothing after %s", words, words[1])
		}
		left, err := selectOne(words[0], lang)
		if err != nil {
			return false, err
		}
		right, err := selectWords(words[2:], lang)
		if words[1] == "&&" {
			return left && right, err
		}
		return left || right, err
	}
	// A list of patterns: one of them must match.
	for _, w := range words {
		ok, err := selectOne(w, lang)
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func selectOne(word, lang string) (bool, error) {
	word = strings.TrimSpace(word)
	switch {
	case strings.HasPrefix(word, "!"):
		ok, err := selects(word[1:], lang)
		return !ok, err
	case strings.ContainsAny(word, " \t"):
		return selects(word, lang)
	case word == "c" || word == "c++" || word == "fortran":
		return word == lang, nil
	case strings.Count(word, "-") >= 2 && (strings.Contains(word, "*") || strings.Contains(word, "linux")):
		return path.Match(word, triplet)
	}
	ok, known := effectiveTargets[word]
	if !known {
		return false, fmt.Errorf("unknown effective target %q", word)
	}
	return ok, nil
}

// optionsMatch reports whether a list of option patterns, as dg-skip-if takes, matches the options
// of a build. Each pattern is a list of options, all of which have to be given; "*" matches any
// build and "" one without options.
func optionsMatch(list string, options []string) (bool, error) {
	patterns, err := tclWords(list)
	if err != nil {
		return false, err
	}
	for _, p := range patterns {
		if p == "*" || optionsGiven(strings.Fields(p), options) && p != "" {
			return true, nil
		}
	}
	return false, nil
}

func optionsGiven(wanted, options []string) bool {
	for _, w := range wanted {
		found := false
		for _, o := range options {
			if ok, err := path.Match(w, o); ok && err == nil {
				found = true
			}
		}
		if !found {
			return false
		}
	}
	return true
}
