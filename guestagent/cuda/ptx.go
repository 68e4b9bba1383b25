package cuda

import (
	"slices"

	"vgpud/guestagent/fatbin"
	"vgpud/ptx"
)

// entryNames returns the names of an image's kernels in their order, or nil for machine code.
func entryNames(image []byte) ([]string, Result) {
	if fatbin.Detect(image) != fatbin.FormatPTX {
		return nil, Success
	}
	m, err := ptx.Parse(string(image))
	if err != nil {
		return nil, ErrorInvalidPtx
	}
	names := []string{}
	for _, item := range m.Items {
		if f, ok := item.(*ptx.Func); ok && f.Entry && f.Body != nil && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names, Success
}

// referenceNames returns the names of an image's texture and surface variables, with whether each is
// a surface.
func referenceNames(image []byte) map[string]bool {
	m, err := ptx.Parse(string(image))
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, item := range m.Items {
		v, ok := item.(*ptx.Var)
		if !ok {
			continue
		}
		switch v.Type {
		case ptx.TexRef:
			names[v.Name] = false
		case ptx.SurfRef:
			names[v.Name] = true
		}
	}
	return names
}
