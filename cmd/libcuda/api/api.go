// Package api describes CUDA's driver API: its functions, enumerations, types and constants, and
// for each function whether this project's libcuda has it. The text files beside it are the
// description; package generate makes the C header, the library's entry points and docs/cuda.md of
// it. The names, numbers and layouts are those of NVIDIA's public documentation of CUDA 13.
//
// A function is a line of four fields:
//
//	NAME | SINCE [FORM] [header=VERSION] [front] | STATE | PARAMETERS
//
// SINCE is the CUDA version from which cuGetProcAddress answers with this symbol. FORM is ptsz or
// ptds: there is a second symbol with that suffix, for the per-thread default stream. header says
// from which version on the C header's macro means this symbol, if not from SINCE; "never" and
// "obsolete" mean no macro, and an obsolete symbol, of CUDA 3.1's 32-bit addresses, has no prototype
// either. front says that the C part implements it by itself, and before cuInit. STATE is built, built as ANOTHER, partly: HOW FAR, refused: WHY, or unbuilt. PARAMETERS is "?" if they are
// not described, for functions that are not built.
package api

import (
	"bufio"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

//go:embed *.txt
var files embed.FS

// State says how far a function is built.
type State string

// The states.
const (
	Built   State = "built"
	Partly  State = "partly"  // Reason says how far
	Refused State = "refused" // it answers an error by design; Reason says why
	Unbuilt State = "unbuilt" // it answers CUDA_ERROR_NOT_SUPPORTED
)

// Param is a parameter in C: its type and its name.
type Param struct{ Type, Name string }

// Function is an exported symbol of libcuda.
type Function struct {
	Name    string
	Section string
	Since   int
	Form    string // "", "ptsz" or "ptds"
	Header  string // version, "never", "obsolete", or "" for Since
	Front   bool
	State   State
	As      string // the function with the same parameters and the same meaning, or ""
	Reason  string
	Params  []Param
	Unknown bool // the parameters are not described
}

var version = regexp.MustCompile(`_v\d$`)

// Base returns the name without a version.
func (f *Function) Base() string { return version.ReplaceAllString(f.Name, "") }

// Enum is an enumeration.
type Enum struct {
	Name, Tag string
	Values    []Value
}

// Value is an enumerator or constant.
type Value struct {
	Name   string
	Number int64
	Text   string // of an error code
}

// API is the description.
type API struct {
	Functions []Function
	Enums     []Enum
	Types     []string // C declarations, in order
	Constants []Value
}

// Symbols returns the names of all symbols that libcuda exports, and which function each is.
func (a *API) Symbols() (names []string, of []*Function) {
	for i := range a.Functions {
		f := &a.Functions[i]
		names, of = append(names, f.Name), append(of, f)
		if f.Form != "" {
			names, of = append(names, f.Name+"_"+f.Form), append(of, f)
		}
	}
	return names, of
}

// Load reads the description.
func Load() (*API, error) {
	a := &API{}
	names, err := fs.Glob(files, "*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := a.parse(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return a, nil
}

func (a *API) parse(text string) error {
	section, n := "", 0
	var enum *Enum
	inType := false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		n++
		line := s.Text()
		word, rest, _ := strings.Cut(line, " ")
		var err error
		switch {
		case line == "":
			enum, inType = nil, false
		case enum != nil:
			var v Value
			v, err = parseValue(strings.TrimSpace(line))
			enum.Values = append(enum.Values, v)
		case inType:
			a.Types[len(a.Types)-1] += "\n" + line
		case word == "section":
			section = rest
		case word == "enum":
			name, tag, _ := strings.Cut(rest, " ")
			a.Enums = append(a.Enums, Enum{Name: name, Tag: tag})
			enum = &a.Enums[len(a.Enums)-1]
		case word == "struct", word == "union", word == "typedef":
			a.Types = append(a.Types, line)
			inType = true
		case word == "constant":
			var v Value
			v, err = parseValue(rest)
			a.Constants = append(a.Constants, v)
		default:
			var f Function
			f, err = parseFunction(line)
			f.Section = section
			a.Functions = append(a.Functions, f)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

func parseValue(s string) (v Value, err error) {
	name, number, ok := strings.Cut(s, " = ")
	if !ok {
		return v, fmt.Errorf("%q is not NAME = NUMBER", s)
	}
	v.Name = name
	if n, text, ok := strings.Cut(number, " "); ok {
		number = n
		if v.Text, err = strconv.Unquote(text); err != nil {
			return v, err
		}
	}
	v.Number, err = strconv.ParseInt(number, 0, 64)
	return v, err
}

func parseFunction(line string) (f Function, err error) {
	fields := strings.Split(line, " | ")
	if len(fields) != 4 {
		return f, fmt.Errorf("%d fields, want 4", len(fields))
	}
	f.Name = fields[0]
	for i, w := range strings.Fields(fields[1]) {
		switch {
		case i == 0:
			if f.Since, err = strconv.Atoi(w); err != nil {
				return f, err
			}
		case w == "ptsz" || w == "ptds":
			f.Form = w
		case w == "front":
			f.Front = true
		case strings.HasPrefix(w, "header="):
			f.Header = strings.TrimPrefix(w, "header=")
		default:
			return f, fmt.Errorf("unknown %q", w)
		}
	}
	state, reason, _ := strings.Cut(fields[2], ": ")
	if as, ok := strings.CutPrefix(state, "built as "); ok {
		state, f.As = string(Built), as
	}
	f.State, f.Reason = State(state), reason
	switch f.State {
	case Built, Unbuilt:
	case Partly, Refused:
		if reason == "" {
			return f, fmt.Errorf("%s without a reason", state)
		}
	default:
		return f, fmt.Errorf("unknown state %q", state)
	}
	switch fields[3] {
	case "?":
		f.Unknown = true
	case "void":
	default:
		for _, p := range splitParams(fields[3]) {
			f.Params = append(f.Params, parseParam(p))
		}
	}
	return f, nil
}

// splitParams splits at the commas outside parentheses.
func splitParams(s string) (all []string) {
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				all = append(all, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return append(all, strings.TrimSpace(s[start:]))
}

var identifier = regexp.MustCompile(`\w+$`)

func parseParam(s string) Param {
	name := identifier.FindString(s)
	return Param{Type: strings.TrimSpace(strings.TrimSuffix(s, name)), Name: name}
}
