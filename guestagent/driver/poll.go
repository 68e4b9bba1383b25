package driver

// Poll reads the completions that the device has published, without waiting, and reports whether
// the command has completed. It reads none while another goroutine reads them.
func (p *Pending) Poll() bool {
	if p.busy.Load() {
		p.ch.tryReap()
	}
	return !p.busy.Load()
}
