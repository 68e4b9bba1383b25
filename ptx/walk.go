package ptx

// Walk calls visit for each operand in list and, recursively, for their elements: those of vectors,
// pairs, lists and addresses.
func Walk(list []Operand, visit func(o *Operand)) {
	for i := range list {
		visit(&list[i])
		Walk(list[i].Elems, visit)
	}
}
