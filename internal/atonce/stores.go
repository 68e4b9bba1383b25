package atonce

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Stores returns where a package's files in dir, other than tests, write one of the named atomic
// words by Store. In mapped memory with the race detector, that is a plain store, which a later load
// can overtake; Swap is none. [Run] shows the effect too, but only while the machine has a processor
// for each side, which a busy one hardly ever has.
func Stores(dir string, words ...string) (at []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && stores(c, words) {
				at = append(at, set.Position(c.Pos()).String())
			}
			return true
		})
	}
	return at, nil
}

// stores reports whether a call is word.Store or x.word.Store.
func stores(c *ast.CallExpr, words []string) bool {
	method, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Store" {
		return false
	}
	switch w := method.X.(type) {
	case *ast.Ident:
		return slices.Contains(words, w.Name)
	case *ast.SelectorExpr:
		return slices.Contains(words, w.Sel.Name)
	}
	return false
}
