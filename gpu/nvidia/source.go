package nvidia

import (
	"errors"

	"vgpud/accounting"
	"vgpud/gpu/nvidia/bar0"
)

// Source reads the status of the compute engine from the GPU's registers, if the host's kernel
// allows it. It is valid until Close.
func (m *Monitor) Source() (accounting.Source, error) {
	registers, err := bar0.Open(m.o.Root, m.o.Info.PCI)
	if err != nil {
		return nil, err
	}
	source, err := accounting.OpenRegisters(registers.Space, m.o.Clock.Now, accounting.RegisterOptions{})
	if err != nil {
		return nil, errors.Join(err, registers.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registers = append(m.registers, registers)
	return source, nil
}

// unmap unmaps the registers.
func (m *Monitor) unmap() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, r := range m.registers {
		errs = append(errs, r.Close())
	}
	m.registers = nil
	return errors.Join(errs...)
}
