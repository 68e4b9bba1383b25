package domain

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReference compares docs/domain-xml.md with the package: its example is Define's output, and
// its tables have every attribute and addition.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../../docs/domain-xml.md")
	if err != nil {
		t.Fatal(err)
	}
	_, metadata, _ := bytes.Cut(page, []byte("\n## The metadata\n"))
	metadata, _, _ = bytes.Cut(metadata, []byte("\n## "))
	var documented, known []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllSubmatch(metadata, -1) {
		documented = append(documented, string(m[1]))
	}
	for _, a := range attributes {
		known = append(known, a.name)
	}
	if diff := cmp.Diff(known, documented); diff != "" {
		t.Errorf("attributes (-known +documented):\n%s", diff)
	}
	for _, a := range additions {
		if name := strings.TrimSuffix(a, "-content"); !bytes.Contains(metadata, []byte("`"+name+"`")) {
			t.Errorf("%s is not in the reference", name)
		}
	}

	bare := minimal(q35, "", "")
	defined, err := Define([]byte(strings.ReplaceAll(bare, "<name>web<", "<name>web1<")), Devices{{Weight: 2, Cap: 0.5}}, runDir)
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```xml\n")
	example, _, _ = strings.Cut(example, "```")
	written := strings.Split(string(defined), "\n")
	for _, line := range strings.Split(strings.Replace(example, `domain:1">`, `domain:1" added="xmlns metadata commandline">`, 1), "\n") {
		if line = strings.TrimSpace(line); line != "..." && !slices.ContainsFunc(written, func(s string) bool { return strings.TrimSpace(s) == line }) {
			t.Errorf("the example's line is not what Define writes:\n%s", line)
		}
	}
}
