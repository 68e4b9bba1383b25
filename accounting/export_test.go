package accounting

// Kept returns the number of times and contexts that the meter keeps.
func (m *RecordMeter) Kept() (n int) {
	n = len(m.contexts)
	for _, c := range m.contexts {
		n += len(c.past) + len(c.ends)
	}
	return n + len(m.residency.residences)
}
