package accounting

// Kept is how many instants the meter keeps.
func (m *SpanMeter) Kept() (n int) {
	for _, c := range m.contexts {
		n += len(c.work) + len(c.ends)
	}
	return n + len(m.residency.stays)
}
