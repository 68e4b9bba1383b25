package daemon

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
)

// TestOperations compares docs/operations.md with the package: the keys of the configuration.
func TestOperations(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	section := func(heading string) string {
		_, text, ok := strings.Cut(string(page), "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("there is no section %q", heading)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		return text
	}

	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-z_.\\[\\]]+`(?:, `[a-z_.\\[\\]]+`)*) \\|").FindAllStringSubmatch(section("Configuration"), -1) {
		described = append(described, regexp.MustCompile(`[a-z_.\[\]]+`).FindAllString(m[1], -1)...)
	}
	if diff := cmp.Diff(keys(reflect.TypeFor[Config](), ""), sorted(described)); diff != "" {
		t.Errorf("the configuration's keys (-there are +described):\n%s", diff)
	}

}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// TestPoliciesAreDocumented: the key's line and the installed configuration name all policies.
func TestPoliciesAreDocumented(t *testing.T) {
	for file, line := range map[string]*regexp.Regexp{
		"../../docs/operations.md": regexp.MustCompile(`(?m)^\| .gpus\[\]\.policy. .*$`),
		"../../deploy/vgpud.yaml":  regexp.MustCompile(`(?m)^ *# about guests:.*\n.*$`),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := line.Find(text)
		for _, name := range fairshare.Names() {
			if !regexp.MustCompile(`[ \x60]` + name + `([,;\x60 ]|$)`).Match(said) {
				t.Errorf("%s: nothing of %s in %q", file, name, said)
			}
		}
	}
}

// keys returns the paths of a configuration's keys.
func keys(typ reflect.Type, prefix string) (all []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch key := prefix + tag; {
		case tag == "" || tag == "-":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, keys(f.Type, key+".")...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			all = append(all, keys(f.Type.Elem(), key+"[].")...)
		default:
			all = append(all, key)
		}
	}
	return sorted(all)
}
