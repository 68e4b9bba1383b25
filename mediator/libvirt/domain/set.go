package domain

import "fmt"

// Attributes are the names of <vgpud:gpu>'s attributes, in the order in which
// they are written.
func Attributes() []string {
	names := make([]string, len(attributes))
	for i, a := range attributes {
		names[i] = a.name
	}
	return names
}

// Set sets what the attribute of that name does, as it is written in XML.
func (g *GPU) Set(name, value string) error {
	for _, a := range attributes {
		if a.name == name {
			return a.read(g, value)
		}
	}
	return fmt.Errorf("there is no attribute %s", show(name))
}
