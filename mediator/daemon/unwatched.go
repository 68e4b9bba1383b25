package daemon

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/statefile"
)

// While no daemon runs, guests compute and nobody watches the GPU. The next daemon bills that time
// when it has adopted a guest. Two sources tell of it. The GPU's own count, if it keeps one
// (gpu.Counted), tells how long a guest's contexts had the GPU, but it goes by names that the
// contexts' processes chose. The count that a guest's executors keep on the guest's control page
// tells how long its commands took, turns of others included, and only once they have ended.
// A guest's processes can write any of their own page and nothing of another's. So no guest is
// billed more than its own page says, and all together no more than the time that passed.

// aliveFile is the name of a file in run_dir that tells when the daemon was last alive: eight bytes,
// an instant of clock.Real.
const aliveFile = "alive"

// noteAlive notes for the next daemon that this one is alive at now. The file is not kept open, or
// its file system could not be mounted read-only; where it can't be written, the next daemon goes by
// when guests' states were saved.
func (s *Service) noteAlive(now time.Duration) {
	// Opening another kind of file, such as a pipe, does not block.
	f, err := os.OpenFile(filepath.Join(s.runDir(), aliveFile), os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(binary.LittleEndian.AppendUint64(nil, uint64(now)))
	if err := errors.Join(err, f.Close()); err != nil {
		s.log.Debug("note that the daemon is alive", "err", err)
	}
}

// readAlive reads when the daemon before was last alive.
func (s *Service) readAlive() {
	b, err := statefile.Read(filepath.Join(s.runDir(), aliveFile), 8)
	if err == nil && len(b) == 8 {
		s.unwatchedSince = time.Duration(binary.LittleEndian.Uint64(b))
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.log.Debug("read when the daemon before was alive", "bytes", len(b), "err", err)
	}
}

// gap returns how long no daemon has watched, up to now, a guest whose state was saved at at.
func (s *Service) gap(at, now time.Duration) time.Duration {
	since := at
	if s.unwatchedSince <= now {
		since = max(at, s.unwatchedSince)
	}
	return max(now-since, 0)
}

// ownCount returns the GPU's own count of what a guest used; nil if it keeps none.
func (d *device) ownCount(guest string) *time.Duration {
	if busy := d.loop.Counts().Busy; busy != nil {
		return new(busy[guest])
	}
	return nil
}

// claim is what is known of a guest's use of its GPU while no daemon ran.
type claim struct {
	gap time.Duration // how long that was
	// executed is what the guest's executors have counted since it was last charged, and working
	// reports whether it has a command on the GPU, which is not in that.
	executed time.Duration
	working  bool
	// own is what the GPU counted beyond what the guest was charged; nil if it keeps no count.
	own *time.Duration
}

// settlement is what a guest is billed for such a time, and how much more it can have used.
type settlement struct{ billed, unaccounted time.Duration }

// settle returns what the guests of a GPU, which takes turns among them, are billed.
func settle(claims []claim) []settlement {
	all := make([]settlement, len(claims))
	gap := time.Duration(0)
	for i := range claims {
		c := &claims[i]
		gap = max(gap, c.gap)
		all[i].billed = min(max(c.executed, 0), c.gap)
		if c.own != nil {
			if c.working {
				all[i].billed = c.gap
			}
			all[i].billed = min(max(*c.own, 0), all[i].billed)
		}
	}
	limitSum(all, gap)
	rest := gap
	for i := range all {
		rest -= all[i].billed
	}
	for i := range claims {
		if c := &claims[i]; c.working && c.own == nil {
			all[i].unaccounted = min(rest, c.gap-all[i].billed)
		}
	}
	return all
}

// limitSum has what is billed in all not exceed most: guests that claim much get less, and those
// that claim less than an equal part get all of it. So a guest that claims too much takes from no
// other's bill more than the turns it could have had.
func limitSum(all []settlement, most time.Duration) {
	sorted := make([]*settlement, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortFunc(sorted, func(a, b *settlement) int { return int(a.billed - b.billed) })
	for i, s := range sorted {
		s.billed = min(s.billed, most/time.Duration(len(sorted)-i))
		most -= s.billed
	}
}

// billUnwatched bills guests that were adopted, and that their GPUs' schedulers don't charge yet,
// for the time since they were last charged.
func (s *Service) billUnwatched(guests []*guest) {
	type part struct {
		g *guest
		p *presence
	}
	byGPU := make(map[*device][]part)
	for _, g := range guests {
		for _, p := range g.all() {
			byGPU[p.device] = append(byGPU[p.device], part{g, p})
		}
	}
	for d, parts := range byGPU {
		counts := d.loop.Counts()
		now := s.clock.Now()
		claims := make([]claim, len(parts))
		for i, x := range parts {
			own, counted := counts.Busy[x.g.spec.Name], counts.Busy != nil
			claims[i] = x.g.claim(x.p, own, counted)
			claims[i].gap = s.gap(x.g.saved.At, now)
		}
		for i, x := range settle(claims) {
			if x == (settlement{}) {
				continue
			}
			g, p := parts[i].g, parts[i].p
			p.sched.ChargeUnwatched(x.billed)
			g.mu.Lock()
			p.unaccounted += x.unaccounted
			g.mu.Unlock()
			s.log.Info("GPU time without a daemon", "guest", g.spec.Name, "gpu", d.config.Name, "time", claims[i].gap, "billed", x.billed, "unaccounted", x.unaccounted)
		}
	}
}

// claim returns what is known of the guest's use of a GPU since it was last charged. own is the
// GPU's count, if it counts.
func (g *guest) claim(p *presence, own time.Duration, counted bool) (c claim) {
	st := p.sched.Status(0)
	c.working = st.Activity.Outstanding > 0
	if base := st.Bill.Executed; base >= 0 {
		c.executed = st.Activity.Counters.GPUTime - base
	}
	saved := g.saved.on(g.nameOf(p))
	if was := saved.Own; counted && was != nil {
		if own < *was {
			was = new(time.Duration) // the GPU's program was started anew
		}
		c.own = new(saved.Bill.Used + own - *was - st.Bill.Used)
	}
	return c
}

// unwatchedEnd is billUnwatched for a guest that has ended meanwhile, whose page is gone.
func (s *Service) unwatchedEnd(k *savedState, p *savedPresence) (billed, unaccounted time.Duration) {
	gap := s.gap(k.At, s.clock.Now())
	d, err := s.device(p.GPU)
	if err != nil || p.Own == nil {
		return 0, gap
	}
	own := d.ownCount(k.Spec.Name)
	if own == nil || *own < *p.Own {
		return 0, gap
	}
	return min(*own-*p.Own, max(s.clock.Now()-k.At, 0)), 0
}
