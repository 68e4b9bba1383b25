package domain

import "fmt"

// Attributes returns the names of <vgpud:gpu>'s attributes, in the order in which they are written.
func Attributes() []string {
	names := make([]string, len(attributes))
	for i, a := range attributes {
		names[i] = a.name
	}
	return names
}

// Set sets the attribute of that name to a value as written in XML.
func (g *GPU) Set(name, value string) error {
	for _, a := range attributes {
		if a.name == name {
			return a.read(g, value)
		}
	}
	return fmt.Errorf("there is no attribute %s", quote(name))
}
