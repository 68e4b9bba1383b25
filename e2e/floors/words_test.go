package floors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// retired maps words that names of this code base once had to the field's words that replaced
// them. A name outside of tests may not have one of them among its words ("nurserySize", "newGrip").
var retired = map[string]string{
	"birth":     "startup configuration",
	"births":    "creation",
	"conceive":  "start ahead",
	"desk":      "guest queue",
	"foresight": "predictor",
	"forsaken":  "stuck",
	"grasp":     "context state",
	"grip":      "controller",
	"haste":     "urgent path",
	"hush":      "preempt successor",
	"hurry":     "expedite",
	"infant":    "prestarted process",
	"kin":       "process attribution",
	"liar":      "unresponsive kernel",
	"nursery":   "prestart",
	"parties":   "guest views",
	"unborn":    "pending VM",
	"warden":    "sandbox manager",
	"wish":      "desired state",
}

// spoken are openings of comments that Go does not have: "X is whether" for "X reports whether".
var spoken = regexp.MustCompile(`^// \w+(\(\))? ((is|are) (whether|for how long|who|whom|whose)|(says|tells) (whether|who|whom))\b`)

// nounClause matches a sentence that opens with a noun clause: "What was freed stays" for "Freed memory
// stays". The comment of a field named What is none.
var nounClause = regexp.MustCompile(`(?:^|[.;:!)] )((?:What|Who|Whoever) [^.;:?]*[.;:?]?)`)

// TestWords checks the Go files of the module for retired names and for comments that open in a
// way that Go's do not.
func TestWords(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != "../.." {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			checkWords(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkWords(t *testing.T, path string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, "_test.go") { // where a guest may well be a liar
		checkNames(t, fset, file, path)
	}
	for _, group := range file.Comments {
		if spoken.MatchString(group.List[0].Text) {
			t.Errorf("%s: %q: say \"reports whether\", or name the thing", fset.Position(group.Pos()), group.List[0].Text)
		}
		for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
			for _, m := range nounClause.FindAllStringSubmatch(strings.ReplaceAll(paragraph, "\n", " "), -1) {
				if !strings.HasSuffix(m[1], "?") && !strings.HasPrefix(m[1], "What is a ") && !strings.HasPrefix(m[1], "What is the ") {
					t.Errorf("%s: %q: name the thing", fset.Position(group.Pos()), m[1])
				}
			}
		}
	}
}

// checkNames checks the name of a file and those that it declares.
func checkNames(t *testing.T, fset *token.FileSet, file *ast.File, path string) {
	for _, word := range nameWords(strings.TrimSuffix(filepath.Base(path), ".go")) {
		if now, ok := retired[word]; ok {
			t.Errorf("%s: a file is named with %q: say %s", path, word, now)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || id.Obj == nil || id.Obj.Pos() != id.Pos() {
			return true // not a declaration
		}
		for _, word := range nameWords(id.Name) {
			if now, ok := retired[word]; ok {
				t.Errorf("%s: the name %s has a retired word: say %s", fset.Position(id.Pos()), id.Name, now)
			}
		}
		return true
	})
}

// nameWords returns the words of a name in camel case or with underscores, in lower case.
func nameWords(name string) (words []string) {
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	upper := false
	for _, r := range name {
		if r == '_' || unicode.IsUpper(r) && !upper {
			flush()
		}
		upper = unicode.IsUpper(r)
		if r != '_' {
			word.WriteRune(r)
		}
	}
	flush()
	return words
}
