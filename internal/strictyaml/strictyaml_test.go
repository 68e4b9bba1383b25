package strictyaml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

type limit int

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *limit) UnmarshalYAML(n *yaml.Node) error {
	if n.Value != "none" {
		return errors.New(`want "none"`)
	}
	*l = -1
	return nil
}

type part struct {
	Name  string        `yaml:"name"`
	Poll  time.Duration `yaml:"poll"`
	Limit limit         `yaml:"limit,omitempty"`
}

type file struct {
	RunDir string            `yaml:"run_dir"`
	Full   bool              `yaml:"full"`
	Memory int64             `yaml:"memory"`
	Ratio  float64           `yaml:"ratio"`
	First  part              `yaml:"first"`
	Parts  []part            `yaml:"parts"`
	Labels map[string]string `yaml:"labels"`
}

func TestUnmarshal(t *testing.T) {
	var got file
	_, err := Unmarshal([]byte(`
run_dir: /run/x
full: true
memory: -1
ratio: 1
first: &f {name: a, poll: 2ms, limit: none}
parts: [*f, {<<: *f, name: b}, {}]
labels: {a: b}
`), &got)
	want := file{
		RunDir: "/run/x", Full: true, Memory: -1, Ratio: 1, First: part{"a", 2 * time.Millisecond, -1},
		Parts: []part{{"a", 2 * time.Millisecond, -1}, {"b", 2 * time.Millisecond, -1}, {}}, Labels: map[string]string{"a": "b"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, empty := range []string{"", "\n", "# nothing\n", "---\n", "run_dir:\n"} {
		if _, err := Unmarshal([]byte(empty), new(file)); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"full: true\nrun-dir: /x":           "f:2: run-dir: unknown key; do you mean run_dir?",
		"parts:\n- name: a\n  pol: 1ms":     "f:3: parts[0].pol: unknown key; do you mean poll?",
		"parts: [{zebra: 1}]":               "f:1: parts[0].zebra: unknown key; known here are limit, name, poll",
		"hidden: 1\n":                       "f:1: hidden: unknown key; known here are first, full, labels, memory, parts, ratio, run_dir",
		"full: maybe\nmemory: 4GiB":         "f:1: full: found \"maybe\", want true or false\nf:2: memory: found \"4GiB\", want a whole number",
		"ratio: much":                       `f:1: ratio: found "much", want a number`,
		"first: {poll: soon}":               `f:1: first.poll: found "soon", want a duration with its unit, such as 10ms or 2s`,
		"first: {limit: 3}":                 `f:1: first.limit: want "none"`,
		"first: 7":                          `f:1: first: found "7", want keys and their values, indented below it`,
		"parts: {name: a}":                  `f:1: parts: found keys, want a list: items that begin with "- "`,
		"parts: 7":                          `f:1: parts: found "7", want a list: items that begin with "- "`,
		"run_dir: [a]":                      `f:1: run_dir: found a list, want a text`,
		"- a":                               `f:1: the file: found a list, want keys and their values, indented below it`,
		"full: true\nmemory: 1\nfull: true": "f:3: full is given twice, first in line 1",
		"run_dir: [":                        "f:1: did not find expected node content",
		"full: true\n---\nfull: false":      `f: there is a second document (after a line "---"): want one, since nothing of it would hold`,
		"run_dir: {a: " + strings.Repeat("x", 50) + "}": "f:1: run_dir: found keys, want a text",
		"full: " + strings.Repeat("x", 50):              `f:1: full: found "` + strings.Repeat("x", 40) + `"…, want true or false`,
	} {
		_, err := Unmarshal([]byte(text), new(file))
		if err == nil || Named("f", err).Error() != want {
			t.Errorf("%s\ngave %v\nwant %v", text, Named("f", err), want)
		}
	}
}

func TestLocate(t *testing.T) {
	doc, err := Unmarshal([]byte("run_dir: /x\nfirst:\n  name: a\nparts:\n- name: b\n- name: c\n  poll: 1s\n"), new(file))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"run_dir /x: want another":            "f:1: ",
		"first: name a: want another":         "f:3: ",
		"first: poll: want one":               "f:2: ", // there is none
		"parts[1] (c): poll 1s: want less":    "f:7: ",
		"parts[1]: a second one named \"b\"":  "f:6: ",
		"parts[7]: there is none":             "f:4: ",
		"parts: want at most one":             "f:4: ",
		"memory 3: want more":                 "f: ",
		"nothing works: run_dir is not there": "f: ",
	} {
		got := Named("f", doc.Locate(errors.New(text))).Error()
		if got != want+text {
			t.Errorf("%q, want %q", got, want+text)
		}
	}
	if err := (Document{}).Locate(nil); err != nil {
		t.Error(err)
	}
}

// FuzzUnmarshal checks that a file either gives an error or what the decoder itself reads.
func FuzzUnmarshal(f *testing.F) {
	f.Add("run_dir: /run/x\nparts: [{name: a, poll: 2ms}]\n")
	f.Add("first: &f {name: a}\nparts: [*f, {<<: *f}]\n")
	f.Add("a: &a [*a]\n")
	f.Add("full: yes\n---\n]")
	f.Add("parts: [{<<: [{name: a}, {poll: 1s}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		var got, want file
		doc, err := Unmarshal([]byte(text), &got)
		if err != nil {
			_ = Named("f", err).Error()
			return
		}
		_ = doc.Locate(errors.New("parts[0] (a): poll 3: want more"))
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("the decoder refuses %q: %v", text, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })); diff != "" {
			t.Errorf("%q: -want +got:\n%s", text, diff)
		}
	})
}
