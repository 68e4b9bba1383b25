package accounting

// Kept is how many instants and contexts the meter keeps.
func (m *SpanMeter) Kept() (n int) {
	n = len(m.contexts)
	for _, c := range m.contexts {
		n += len(c.work) + len(c.ends)
	}
	return n + len(m.residency.stays)
}
