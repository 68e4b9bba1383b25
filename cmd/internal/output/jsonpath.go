package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Path is a template in the form of kubectl's jsonpath: text with expressions in braces, such as
// "{.name}: {.gpu}\n". An expression is a path, a text in double quotes, or {range PATH} … {end}.
// A path is made of .field, ['field'], [n], [*] and .*, from the item that is printed on.
type Path struct{ parts []part }

// part is a piece of a template: a text, a path, or a range with what is inside.
type part struct {
	text   string
	path   []step
	inside []part
	kind   partKind
}

type partKind int

const (
	textPart partKind = iota
	pathPart
	rangePart
)

// step goes from a value to values inside.
type step struct {
	field string
	index int
	kind  stepKind
}

type stepKind int

const (
	fieldStep stepKind = iota
	indexStep
	allStep
)

// ParsePath parses a template.
func ParsePath(template string) (*Path, error) {
	parts, rest, err := parseParts(template, false)
	if err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", template, err)
	}
	if rest != "" {
		return nil, fmt.Errorf("jsonpath %q: {end} without {range …}", template)
	}
	return &Path{parts}, nil
}

// parseParts parses until the end, or until {end} if inRange, and returns what follows.
func parseParts(s string, inRange bool) (parts []part, rest string, err error) {
	for s != "" {
		text, after, ok := strings.Cut(s, "{")
		if text != "" {
			parts = append(parts, part{text: text})
		}
		if !ok {
			break
		}
		expression, after, err := cutExpression(after)
		if err != nil {
			return nil, "", err
		}
		s = after
		path, isRange := strings.CutPrefix(expression, "range ")
		switch {
		case expression == "end" && !inRange:
			return nil, "", fmt.Errorf("{end} without {range …}")
		case expression == "end":
			return parts, s, nil
		case isRange:
			p := part{kind: rangePart}
			if p.path, err = parseSteps(strings.TrimSpace(path)); err == nil {
				p.inside, s, err = parseParts(s, true)
			}
			if err != nil {
				return nil, "", err
			}
			parts = append(parts, p)
		case strings.HasPrefix(expression, `"`):
			text, err := strconv.Unquote(expression)
			if err != nil {
				return nil, "", fmt.Errorf("{%s}: want a text in double quotes", expression)
			}
			parts = append(parts, part{text: text})
		default:
			p := part{kind: pathPart}
			if p.path, err = parseSteps(expression); err != nil {
				return nil, "", err
			}
			parts = append(parts, p)
		}
	}
	if inRange {
		return nil, "", fmt.Errorf("{range …} without {end}")
	}
	return parts, "", nil
}

// cutExpression returns what is up to the brace that ends an expression, outside of quotes, and
// what follows that.
func cutExpression(s string) (expression, rest string, err error) {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '}':
			return strings.TrimSpace(s[:i]), s[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("{%s: there is no closing brace", s)
}

// parseSteps parses a path.
func parseSteps(path string) (steps []step, err error) {
	bad := func(at string) error {
		return fmt.Errorf("{%s}: at %q: want .field, ['field'], [number] or [*]", path, at)
	}
	s := strings.TrimPrefix(strings.TrimPrefix(path, "@"), "$")
	if path == "" {
		return nil, bad(path)
	}
	for s != "" && s != "." {
		if rest, ok := strings.CutPrefix(s, "["); ok {
			inside, after, ok := strings.Cut(rest, "]")
			name := strings.Trim(inside, `'"`)
			n, nerr := strconv.Atoi(inside)
			switch {
			case !ok:
				return nil, bad(s)
			case inside == "*":
				steps = append(steps, step{kind: allStep})
			case nerr == nil:
				steps = append(steps, step{kind: indexStep, index: n})
			case name != "" && len(name) == len(inside)-2:
				steps = append(steps, step{field: name})
			default:
				return nil, bad(s)
			}
			s = after
			continue
		}
		rest, ok := strings.CutPrefix(s, ".")
		if !ok {
			return nil, bad(s)
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		switch name := rest[:end]; name {
		case "*":
			steps = append(steps, step{kind: allStep})
		case "":
			if end == 0 && strings.HasPrefix(rest, "[") {
				break // .[0] is [0]
			}
			return nil, bad(s)
		default:
			steps = append(steps, step{field: name})
		}
		s = rest[end:]
	}
	return steps, nil
}

// Print writes v by its JSON, and a line's end unless the template ends in one.
func (p *Path) Print(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	var out strings.Builder
	if err := printParts(&out, p.parts, plain); err != nil {
		return err
	}
	text := out.String()
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = io.WriteString(w, text)
	return err
}

func printParts(out *strings.Builder, parts []part, v any) error {
	for _, p := range parts {
		if p.kind == textPart {
			out.WriteString(p.text)
			continue
		}
		found := []any{v}
		for _, s := range p.path {
			found = s.apply(found)
		}
		for i, f := range found {
			if p.kind == rangePart {
				if err := printParts(out, p.inside, f); err != nil {
					return err
				}
				continue
			}
			if i > 0 {
				out.WriteByte(' ')
			}
			if err := printValue(out, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply returns the values at a step from others. Values that have nothing there are left out, as
// fields that are empty are not in the JSON.
func (s step) apply(from []any) (found []any) {
	for _, v := range from {
		switch v := v.(type) {
		case map[string]any:
			switch s.kind {
			case fieldStep:
				if f, ok := v[s.field]; ok {
					found = append(found, f)
				}
			case allStep:
				for _, key := range sortedKeys(v) {
					found = append(found, v[key])
				}
			}
		case []any:
			switch s.kind {
			case allStep:
				found = append(found, v...)
			case indexStep:
				i := s.index
				if i < 0 {
					i += len(v)
				}
				if i >= 0 && i < len(v) {
					found = append(found, v[i])
				}
			}
		}
	}
	return found
}

func printValue(out *strings.Builder, v any) error {
	switch v := v.(type) {
	case string:
		out.WriteString(Printable(v))
	case json.Number:
		out.WriteString(v.String())
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		out.Write(b)
	}
	return nil
}
