// Package strictyaml reads configuration files in YAML. A key that is not known, a value of another
// type and a key that is given twice are errors. They name the line, the key and what would be right,
// for readers who know the file and not the program.
package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vgpud/internal/nearest"
)

// Error is an error at a line of the file.
type Error struct {
	Line int
	Err  error
}

// Error returns the error's text, with the line.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the error without the line.
func (e *Error) Unwrap() error { return e.Err }

// Document is a file that was read.
type Document struct{ root *yaml.Node }

// Unmarshal reads one document into v, a pointer to a struct. Where there are several errors, it
// returns all of them.
func Unmarshal(b []byte, v any) (Document, error) {
	d := yaml.NewDecoder(strings.NewReader(string(b)))
	var n yaml.Node
	if err := d.Decode(&n); err != nil {
		if errors.Is(err, io.EOF) {
			return Document{}, nil
		}
		return Document{}, located(err)
	}
	doc := Document{root: &n}
	if len(n.Content) > 0 {
		doc.root = n.Content[0]
	}
	var more yaml.Node
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return doc, errors.Join(errors.New("there is a second document (after a line \"---\"): want one, since nothing of it would hold"), located(err))
	}
	var c checker
	c.check(doc.root, reflect.TypeOf(v).Elem(), "")
	if len(c.errs) > 0 {
		return doc, errors.Join(c.errs...)
	}
	return doc, located(doc.root.Decode(v))
}

var lineOf = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (?s)(.*)$`)

// located returns an error of the YAML decoder with its line apart.
func located(err error) error {
	if err == nil {
		return nil
	}
	m := lineOf.FindStringSubmatch(err.Error())
	if m == nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	line, aerr := strconv.Atoi(m[1])
	if aerr != nil {
		return err
	}
	return &Error{line, errors.New(m[2])}
}

// checker compares nodes with the types that they are to be decoded into.
type checker struct {
	errs  []error
	depth int // of aliases
}

func (c *checker) fail(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, &Error{n.Line, fmt.Errorf(format, args...)})
}

// check compares a node with a type. path is the node's place in the file, such as gpus[0].
func (c *checker) check(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		if c.depth > 8 {
			c.fail(n, "%s: aliases within aliases: write the value out", path)
			return
		}
		c.depth++
		defer func() { c.depth-- }()
		c.check(n.Alias, t, path)
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Tag == "!!null" {
		return // the default
	}
	_, custom := reflect.New(t).Interface().(yaml.Unmarshaler)
	switch {
	case custom, n.Kind == yaml.ScalarNode && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Map:
		c.value(n, t, path)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		c.fields(n, t, path)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			c.check(n.Content[i+1], t.Elem(), join(path, n.Content[i].Value))
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			c.check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		c.fail(n, "%s: %s, want %s", orFile(path), found(n), wanted(t))
	}
}

// fields checks the keys of a mapping against the fields of a struct.
func (c *checker) fields(n *yaml.Node, t reflect.Type, path string) {
	known := make(map[string]reflect.Type)
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); key != "" && key != "-" {
			known[key] = t.Field(i).Type
		}
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged := []*yaml.Node{value}
			if value.Kind == yaml.SequenceNode {
				merged = value.Content
			}
			for _, m := range merged {
				c.check(m, t, path)
			}
			continue
		}
		if line, twice := seen[key.Value]; twice {
			c.fail(key, "%s is given twice, first in line %d", join(path, key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		typ, ok := known[key.Value]
		if !ok {
			c.fail(key, "%s: unknown key; %s", join(path, key.Value), meant(key.Value, known))
			continue
		}
		c.check(value, typ, join(path, key.Value))
	}
}

// value checks a scalar, or what the type decodes itself.
func (c *checker) value(n *yaml.Node, t reflect.Type, path string) {
	to := reflect.New(t)
	err := n.Decode(to.Interface())
	if err == nil {
		return
	}
	if _, custom := to.Interface().(yaml.Unmarshaler); custom {
		var own *Error
		err = located(err)
		if errors.As(err, &own) {
			err = own.Err
		}
		c.fail(n, "%s: %v", path, err)
		return
	}
	c.fail(n, "%s: %s, want %s", path, found(n), wanted(t))
}

func orFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// found describes a node.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "found keys"
	case yaml.SequenceNode:
		return "found a list"
	}
	const shown = 40
	if len(n.Value) > shown {
		return fmt.Sprintf("found %q…", n.Value[:shown])
	}
	return fmt.Sprintf("found %q", n.Value)
}

// wanted describes the values of a type.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration with its unit, such as 10ms or 2s"
	case t.Kind() == reflect.Struct:
		return "keys and their values, indented below it"
	case t.Kind() == reflect.Slice:
		return "a list: items that begin with \"- \""
	case t.Kind() == reflect.Map:
		return "names and their values, indented below it"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64, t.Kind() == reflect.Float32:
		return "a number"
	case t.Kind() == reflect.String:
		return "a text"
	}
	return "a whole number"
}

// meant says which known key a misspelled one may be, or which there are.
func meant(key string, known map[string]reflect.Type) string {
	names := slices.Sorted(maps.Keys(known))
	if name, ok := nearest.Name(key, names); ok {
		return fmt.Sprintf("do you mean %s?", name)
	}
	return "known here are " + strings.Join(names, ", ")
}
