package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
)

// cordon keeps guests off a GPU, because an operator wants it so. It is saved for the next daemon,
// also after a reboot of the host: what is wrong with the GPU may be so still.
type cordon struct {
	// Cordoned keeps guests from being created on the GPU.
	Cordoned bool `json:"cordoned"`
	// Draining also keeps contexts from being created there; it implies Cordoned.
	Draining bool `json:"draining"`
}

// apply returns c with an update's changes.
func (c cordon) apply(u *api.GPUUpdate) cordon {
	if u.Cordoned != nil {
		c.Cordoned = *u.Cordoned
		c.Draining = c.Draining && c.Cordoned
	}
	if u.Draining != nil {
		c.Draining = *u.Draining
		c.Cordoned = c.Cordoned || c.Draining
	}
	return c
}

// text describes the state of a GPU for people; "" if nothing keeps guests off it.
func (c cordon) text() string {
	switch {
	case c.Draining:
		return "is being drained"
	case c.Cordoned:
		return "is cordoned"
	}
	return ""
}

// admit returns an error if no guest is to be created on the GPU with that name.
func (c cordon) admit(gpu string) error {
	if !c.Cordoned {
		return nil
	}
	return fmt.Errorf("GPU %s %s, so no guest is created there until `vgpuctl uncordon gpu %s`: %w", gpu, c.text(), gpu, api.ErrNoRoom)
}

// cordonNow returns what keeps guests off the GPU.
func (d *device) cordonNow() cordon {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cordon
}

func (d *device) setCordon(c cordon) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cordon = c
}

// cordonFile returns the file of a GPU's saved cordon.
func (s *Service) cordonFile(gpu string) string {
	return filepath.Join(s.stateDir(), "gpus", gpu+".cordon.json")
}

// earlierCordonFile returns where daemons saved it that kept it until a reboot alone.
func (s *Service) earlierCordonFile(gpu string) string {
	return filepath.Join(s.runDir(), "gpus", gpu+".cordon.json")
}

// updateCordon changes what keeps guests off a GPU, once the next daemon will know it, and ends the
// contexts there if the update asks for that.
func (s *Service) updateCordon(by access.Caller, d *device, u *api.GPUUpdate) error {
	// No guest is admitted meanwhile.
	s.admission.Lock()
	had := d.cordonNow()
	c := had.apply(u)
	if u.EndContexts && !c.Draining {
		s.admission.Unlock()
		return fmt.Errorf("end_contexts: the GPU is not draining: %w", api.ErrInvalid)
	}
	var err error
	if c != had {
		if err = s.saveCordon(d.config.Name, c); err == nil {
			d.setCordon(c)
		} else if rerr := s.saveCordon(d.config.Name, had); rerr != nil {
			s.log.Debug("save again what keeps guests off a GPU", "gpu", d.config.Name, "err", rerr)
		}
	}
	s.admission.Unlock()
	if err != nil {
		return s.notSaved(err)
	}
	if c != had {
		what := cmp.Or(c.text(), "takes guests again")
		s.log.Warn("GPU "+what, events.Kind(events.CordonChanged), "gpu", d.config.Name, "cordoned", c.Cordoned, "draining", c.Draining, "by", by)
	}
	if c.Draining != had.Draining || u.EndContexts {
		s.tellDrain(d, s.guestsOn(d), u.EndContexts)
	}
	return nil
}

// saveCordon saves what keeps guests off a GPU for the next daemon.
func (s *Service) saveCordon(gpu string, c cordon) error {
	path := s.cordonFile(gpu)
	if c == (cordon{}) {
		return errors.Join(s.o.Files.Remove(path), s.o.Files.Remove(s.earlierCordonFile(gpu)))
	}
	return s.saveGPUFile(path, c)
}

// saveGPUFile saves what is to be known of a GPU, in a directory that is made with the first file.
func (s *Service) saveGPUFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save a GPU's state: %w", err)
	}
	return s.writeNew(path, b)
}

// writeNew writes a file whose directory may not be there yet.
func (s *Service) writeNew(path string, b []byte) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return &statefile.Error{Path: path, Err: err}
		}
		if err := s.o.Files.SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return s.o.Files.Write(path, b)
}

// restoreCordons keeps guests off the GPUs that an earlier daemon kept them off. A file that can't
// be read keeps guests off, too: its GPU may be out of order.
func (s *Service) restoreCordons() {
	for _, d := range s.devices {
		path := s.cordonFile(d.config.Name)
		b, err := statefile.Read(path, maxStateBytes)
		earlier := s.earlierCordonFile(d.config.Name)
		if errors.Is(err, fs.ErrNotExist) && earlier != path {
			if b, err = statefile.Read(earlier, maxStateBytes); err == nil {
				if err := errors.Join(s.writeNew(path, b), s.o.Files.Remove(earlier)); err != nil {
					s.log.Warn("GPU's cordon may be forgotten at a reboot of the host", "gpu", d.config.Name, "err", err)
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var c cordon
		if err == nil {
			err = json.Unmarshal(b, &c)
		}
		if err != nil {
			c = cordon{Cordoned: true}
			s.log.Error("GPU is cordoned: what an earlier daemon saved of that can't be read", "gpu", d.config.Name, "err", err)
		}
		d.setCordon(c)
		s.log.Warn("GPU "+c.text(), events.Kind(events.CordonChanged), "gpu", d.config.Name)
	}
}

// guestsOn returns the guests that have or may have contexts on a GPU.
func (s *Service) guestsOn(d *device) (all []*guest) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.guests {
		if g.onDevice(d) != nil {
			all = append(all, g)
		}
	}
	return all
}

// tellDrain tells guests whether a GPU is being drained, as it is now. end has them end their contexts on
// one that is. Of two calls, what the later one tells holds. s.mu is not held: a guest's process that does
// not read keeps the call waiting.
func (s *Service) tellDrain(d *device, guests []*guest, end bool) {
	d.telling.Lock()
	defer d.telling.Unlock()
	draining := d.cordonNow().Draining
	var told sync.WaitGroup
	for _, g := range guests {
		told.Go(func() { s.tellGuest(g, ipc.Drain{Refuse: draining, End: end && draining, GPU: g.drained(d)}) })
	}
	told.Wait()
}

// drained returns a GPU's name as a guest is told that it is drained: one that does not float has no
// other.
func (g *guest) drained(d *device) string {
	if g.floats() {
		return d.config.Name
	}
	return ""
}

// tellGuest tells one guest whether its GPU is being drained.
func (s *Service) tellGuest(g *guest, d ipc.Drain) {
	m, err := ipc.NewMessage(ipc.KindDrain, d)
	if err == nil {
		err = g.conn.Send(m)
	}
	if err != nil {
		s.log.Warn("tell a guest that its GPU is drained, or not any more", "guest", g.spec.Name, "err", err)
	}
}
