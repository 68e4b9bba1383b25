package output

import (
	"strings"
	"testing"
)

func TestJSONPath(t *testing.T) {
	v := []map[string]any{
		{"name": "a", "gpu": "gpu0", "share": 0.25, "list": []int{1, 2, 3}, "odd.name": true},
		{"name": "b\x1b[2J", "share": 1e-9, "inside": map[string]any{"x": "y", "z": nil}},
	}
	for template, want := range map[string]string{
		`{[*].name}`:                    "a b\\x1b[2J\n",
		`{[0].gpu}`:                     "gpu0\n",
		`{.[0].gpu}`:                    "gpu0\n",
		`{[-1].share}`:                  "1e-9\n",
		`{[0].list}`:                    "[1,2,3]\n",
		`{[0].list[1]}`:                 "2\n",
		`{[0]['odd.name']}`:             "true\n",
		`{[1].inside.*}`:                "y null\n",
		`{[1].nothing.at.all}`:          "\n",
		`{[9].name}`:                    "\n",
		`n: {[0].name}{"\n"}`:           "n: a\n",
		`{"}"}{[0]['name']}`:            "}a\n",
		`{range [*]}{.share};{end}`:     "0.25;1e-9;\n",
		`{range [0].list[*]}{@}, {end}`: "1, 2, 3, \n",
		`{range [*]}{range .list[*]}{.}{end}|{end}`: "123||\n",
	} {
		p, err := ParsePath(template)
		if err != nil {
			t.Error(err)
			continue
		}
		var b strings.Builder
		if err := p.Print(&b, v); err != nil || b.String() != want {
			t.Errorf("%s: %q, %v, want %q", template, b.String(), err, want)
		}
	}
	for template, want := range map[string]string{
		`{.name`: "no closing brace", `{name}`: "want .field", `{end}`: "{end} without", `{range [*]}{.x}`: "without {end}",
		`{[}`: "want .field", `{["x]}`: "no closing brace", `{..x}`: "want .field", `{}`: "want .field", `{"\q"}`: "double quotes", `{[x]}`: "want .field",
		`{range [*]}{end}{end}`: "{end} without",
	} {
		if _, err := ParsePath(template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{`{[*].name}`, `{range .a[0]}{"\n"}{end}`, `{['x']}{`, "text"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, template string) {
		p, err := ParsePath(template)
		if err != nil {
			return
		}
		var b strings.Builder
		if err := p.Print(&b, map[string]any{"a": []any{1, "x"}, "x": nil}); err != nil {
			t.Error(err)
		}
	})
}

// TestNamesCantInject: what a guest's name holds neither commands a terminal nor is a formula.
func TestNamesCantInject(t *testing.T) {
	rows := [][]string{{"=1+2", "-5.5"}, {"a\x1b[2J\u202e", "@x,\"y\""}}
	var table, csv strings.Builder
	f := Format{}
	if err := f.Table(&table, []string{"A", "B"}, rows); err != nil {
		t.Fatal(err)
	}
	if want := "A                B\n=1+2             -5.5\na\\x1b[2J\\u202e   @x,\"y\"\n"; table.String() != want {
		t.Errorf("table %q, want %q", table.String(), want)
	}
	if err := CSV(&csv, []string{"a", "b"}, [][]string{{"=1+2", "-5.5"}, {"a\x1b[2J", "@x,\"y\""}}); err != nil {
		t.Fatal(err)
	}
	if want := "a,b\n'=1+2,-5.5\na\\x1b[2J,\"'@x,\"\"y\"\"\"\n"; csv.String() != want {
		t.Errorf("csv %q, want %q", csv.String(), want)
	}
}

// TestTableGoesOn: rows that come later stand under the same headings, which are not repeated.
func TestTableGoesOn(t *testing.T) {
	var b strings.Builder
	var table Table
	for _, rows := range [][][]string{{{"web1", "1"}}, {{"longer-name", "2"}}, {{"a", "3"}}} {
		if err := table.Write(&b, []string{"NAME", "N"}, rows); err != nil {
			t.Fatal(err)
		}
	}
	if want := "NAME   N\nweb1   1\nlonger-name   2\na             3\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
