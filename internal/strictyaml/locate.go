package strictyaml

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyWord matches the key at the beginning of a part of an error's text.
var keyWord = regexp.MustCompile(`^([a-z_]+)(?:\[(\d+)\])?`)

// Locate returns an error about the content of the file with the line that it is about. The text of
// such an error names the keys that lead there, outer ones first, each followed by a colon or by
// its value: "gpus[0] (gpu0): accounting: poll 2h: want …". An error that has a line keeps it.
func (d Document) Locate(err error) error {
	var has *Error
	if err == nil || d.root == nil || errors.As(err, &has) {
		return err
	}
	at, line := d.root, 0
	for text := range strings.SplitSeq(err.Error(), ": ") {
		m := keyWord.FindStringSubmatch(text)
		if m == nil {
			break
		}
		value, l := child(at, m[1], m[2])
		if value == nil {
			break
		}
		at, line = value, l
	}
	if line == 0 {
		return err
	}
	return &Error{line, err}
}

// child returns the value of a key in a mapping, or of one item if it is a list, and its line.
func child(n *yaml.Node, key, item string) (*yaml.Node, int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil, 0
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Value != key {
			continue
		}
		if j, err := strconv.Atoi(item); err == nil && value.Kind == yaml.SequenceNode && j < len(value.Content) {
			return value.Content[j], value.Content[j].Line
		}
		return value, name.Line
	}
	return nil, 0
}

// Named returns an error of a file with the file's name before each line: FILE:LINE: text.
func Named(file string, err error) error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, Named(file, e))
		}
		return errors.Join(all...)
	}
	if at, ok := errors.AsType[*Error](err); ok {
		return fmt.Errorf("%s:%d: %w", file, at.Line, at.Err)
	}
	return fmt.Errorf("%s: %w", file, err)
}
