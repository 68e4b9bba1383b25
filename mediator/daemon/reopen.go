package daemon

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/api"
)

// reopenEvery is how often the daemon looks whether a GPU that is gone has come
// back.
const reopenEvery = 500 * time.Millisecond

// opened is a GPU as it was opened, and how it is watched. A GPU that was gone is
// opened anew.
type opened struct {
	device gpu.Monitor
	props  gpu.Properties
	watching
}

// close gives the GPU back.
func (o *opened) close() error { return errors.Join(o.sight.close(), o.device.Close()) }

// openGPU opens a GPU to be watched on behalf of its share.
func (s *Service) openGPU(ctx context.Context, sh *share) (o opened, err error) {
	o.device, err = s.o.Open(ctx, sh.config.link())
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	sh.mu.Lock()
	config := sh.accounting
	sh.mu.Unlock()
	if o.sight, err = look(o.device, config.Source, sight{}); err != nil {
		return o, err
	}
	if sh.config.Kind == kindSoft {
		if err := s.sandboxes.Share(sh.config.Socket); err != nil {
			return o, err
		}
	}
	if o.sight.kind == api.SourceLaunches {
		s.log.Warn("guests are charged by what their own processes say", "gpu", sh.config.Name, "reason", cmp.Or(o.sight.why, "asked for"))
	}
	o.props = o.device.Properties()
	o.watching, err = s.watching(sh, o.sight, config)
	return o, err
}

// attend watches a GPU until ctx ends, and opens it anew each time that it was
// gone.
func (s *Service) attend(ctx context.Context, sh *share) {
	for {
		failed := sh.watched(ctx)
		if ctx.Err() != nil {
			return
		}
		// After a failure nothing is shared until the GPU is opened anew, which also has
		// the source that another watcher was to go by.
		if !failed && sh.turnedOver() {
			continue
		}
		if err := sh.stopRecording(); err != nil {
			s.log.Debug("stop watching a GPU that is gone", "gpu", sh.config.Name, "err", err)
		}
		again, err := s.reopen(ctx, sh)
		if err != nil {
			return // the daemon ends
		}
		old, current := sh.renew(ctx, again)
		if err := old.close(); err != nil {
			s.log.Debug("close a GPU that was gone", "gpu", sh.config.Name, "err", err)
		}
		if !current {
			return
		}
		s.log.Info("GPU is back", "gpu", sh.config.Name)
		sh.changed(0)
	}
}

// stopRecording ends the recording, of which there may be one at a time. Nobody
// watches the GPU.
func (s *share) stopRecording() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.opened.sight
	s.opened.sight.events = nil
	return old.close()
}

// reopen tries until the GPU is back. The error is the end of ctx.
func (s *Service) reopen(ctx context.Context, sh *share) (opened, error) {
	for {
		if err := clock.Sleep(ctx, s.clock, reopenEvery); err != nil {
			return opened{}, err
		}
		o, err := s.openGPU(ctx, sh)
		if err == nil {
			return o, nil
		}
		s.log.Debug("GPU is not back", "gpu", sh.config.Name, "err", err)
	}
}

// watched has the watcher watch the GPU until ctx ends, the GPU is gone, or
// another one is to watch it. failed is whether the share was told of a failure.
func (s *share) watched(ctx context.Context) (failed bool) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	there, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	o, turn := s.opened, s.next != nil
	s.stopWatching = cancel
	s.mu.Unlock()
	if turn {
		return false
	}
	if l, ok := o.device.(gpu.Losable); ok {
		// What its registers show last stays there when its process is killed.
		waiting.Go(func() {
			select {
			case <-l.Lost():
				cancel()
			case <-there.Done():
			}
		})
	}
	// An error was told to the share already.
	if err := o.watcher.Run(there); err != nil {
		s.log.Error("watcher ended", "gpu", s.config.Name, "err", err)
		return true
	}
	s.mu.Lock()
	turn = s.next != nil
	s.mu.Unlock()
	if ctx.Err() != nil || turn {
		return false
	}
	s.Failed(gpu.ErrLost)
	return true
}

// open is the GPU as it is open now.
func (s *share) open() opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// renew puts a GPU that is back in the place of the one that is gone, and returns
// what of the two is not used any more: once ctx has ended nothing changes, and
// current is false.
func (s *share) renew(ctx context.Context, again opened) (unused opened, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return again, false // leave has been here, or will be
	}
	old := s.opened
	if err := s.schedule(nil); err != nil {
		s.log.Debug("close what was to watch a GPU that was gone", "gpu", s.config.Name, "err", err)
	}
	s.opened, s.planner = again, accounting.NewPlanner(again.watch)
	s.watchedCPU += old.watcher.CPU()
	s.problem, s.over = "", false
	return old, true
}
