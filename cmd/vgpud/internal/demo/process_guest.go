package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
)

// startProcess starts a guest as a process of this program, connected to its virtual GPU's socket,
// and follows its reports.
func (d *demo) startProcess(m *guest) (instance, error) {
	plan := m.Plan
	plan.Socket = m.socket
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	cmd, err := d.o.Program("demo-guest")
	if err != nil {
		return nil, err
	}
	cmd.Stdin = bytes.NewReader(text)
	return d.follow(m, cmd)
}

// follow starts a guest's process and follows its reports.
func (d *demo) follow(m *guest, cmd *exec.Cmd) (instance, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	p, err := d.start("guest-"+m.Name, cmd)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	d.readers.Go(func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			m.addReport(lines.Bytes())
		}
		if err := errors.Join(lines.Err(), r.Close()); err != nil {
			m.fail(err)
		}
	})
	return p, nil
}
