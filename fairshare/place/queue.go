package place

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/fairshare"
)

// TaskID identifies a task of any guest.
type TaskID uint64

// Errors of a [Queue]. A call that returns one changes nothing.
var (
	// ErrNoGPU is a request or a limit that no GPU could hold, however idle.
	ErrNoGPU = errors.New("no GPU has that much")
	// ErrLimit is memory beyond the limit of the task's guest.
	ErrLimit = errors.New("over the guest's memory limit")
	// ErrEmpty is a request of no memory, or a guest without a weight or a limit, or with a guarantee
	// below 0.
	ErrEmpty = errors.New("nothing is asked for")
	// ErrExists is a task or guest that is there already.
	ErrExists = errors.New("exists already")
	// ErrUnknown is a task or guest that is not there.
	ErrUnknown = errors.New("unknown")
	// ErrState is a call that a task's state does not allow.
	ErrState = errors.New("not in this state")
)

// Config is how a [Queue] decides. The zero value is usable.
type Config struct {
	// Placer chooses GPUs. nil is [Warps].
	Placer Placer
	// Patience is how long others may pass the first task at most, and how long a task may wait for
	// more memory while it holds some. 0 is [DefaultPatience].
	Patience time.Duration
	// Idle is how long a task may hold memory that it does not use while others wait. 0 is
	// [DefaultIdle].
	Idle time.Duration
}

// Defaults of [Config].
const (
	DefaultPatience = 30 * time.Second
	DefaultIdle     = 10 * time.Second
)

// Guest is the part that a guest has in a [Queue].
type Guest struct {
	// Weight is its weight in the order of tasks, above 0.
	Weight float64
	// Memory is the limit in bytes of all its tasks together.
	Memory uint64
	// Guarantee is the part of a GPU's time that it is promised on each GPU where it has a task.
	Guarantee float64
	// GPUs are those where its tasks may go. 0 is all.
	GPUs Set
	// Urgent guests come first, and tasks of others leave for theirs.
	Urgent bool
}

// State is where a task is in its life.
type State uint8

const (
	// Waiting tasks hold nothing and wait for a GPU.
	Waiting State = iota
	// Placed tasks have what they asked for.
	Placed
	// Growing tasks are on a GPU and wait for more memory.
	Growing
	// Moving tasks hold memory on two GPUs until [Queue.Moved].
	Moving
	// Leaving tasks hold memory until [Queue.Left].
	Leaving
	// Parked tasks hold nothing and want nothing: they left because they were idle.
	Parked
)

var stateNames = [...]string{"waiting", "placed", "growing", "moving", "leaving", "parked"}

// String returns the state's name.
func (s State) String() string {
	return nameOf(stateNames[:], "State", uint8(s))
}

// nameOf returns the name of a value, or its type and number if it has none.
func nameOf(names []string, kind string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// Kind is what an [Action] tells the caller to do.
type Kind uint8

const (
	// Begin starts a task on Action.GPU, with its memory from the host if it was there.
	Begin Kind = iota
	// Grow lets a task have Action.Memory where it is.
	Grow
	// Move moves a task to Action.GPU, where it has Action.Memory; then [Queue.Moved].
	Move
	// Leave moves a task's memory to the host; then [Queue.Left].
	Leave
	// Refuse fails what a task waits for, since no GPU could hold it any more. A task that was
	// placed stays as it is. One that waited is gone.
	Refuse
)

var kindNames = [...]string{"begin", "grow", "move", "leave", "refuse"}

// String returns the kind's name.
func (k Kind) String() string {
	return nameOf(kindNames[:], "Kind", uint8(k))
}

// Why is the reason of a [Move] or [Leave].
type Why uint8

const (
	// NoReason is that of all other actions.
	NoReason Why = iota
	// Growth is a task that waits for more memory.
	Growth
	// ForUrgent is an urgent guest's task that needs the memory.
	ForUrgent
	// IsIdle is memory that its task did not use while others waited.
	IsIdle
)

var whyNames = [...]string{"", "growth", "urgent", "idle"}

// String returns the reason's name, or "".
func (w Why) String() string {
	return nameOf(whyNames[:], "Why", uint8(w))
}

// Action is something that the caller of [Queue.Begin] has to do.
type Action struct {
	Kind Kind
	Task TaskID
	// GPU is where the task is from now on, or the GPU that it leaves.
	GPU int
	// Memory is what it has there from now on, in bytes. For [Leave] it is what it had.
	Memory uint64
	Why    Why
}

// task is a task of a queue.
type task struct {
	id    TaskID
	guest *guest
	req   Request // Memory is what it wants to have in all
	seq   uint64  // order of submission
	state State
	gpu   int    // where it is: Placed, Growing, Moving, Leaving
	from  int    // the GPU that it moves away from
	grant uint64 // bytes on gpu
	left  uint64 // bytes on from
	onSMs share  // for [Blocks]
	since time.Duration
	why   Why // of Leaving

	quiet      bool
	quietSince time.Duration

	by     *guest        // for which it leaves: it is urgent; or nil
	stays  bool          // it could not leave, lately
	stayed time.Duration // when that was

	passed   bool // others passed it while it was first
	passedAt time.Duration
	passedBy int // how many did
	kept     int // the GPU where memory is kept for it, or -1
}

// guest is a guest with its tasks.
type guest struct {
	id fairshare.GuestID
	Guest
	used    float64 // memory-time divided by weight, in byte-seconds
	at      time.Duration
	held    uint64 // bytes on GPUs
	asked   uint64 // bytes of all its tasks that count for its limit
	waiting []*task
	waited  time.Duration // when it last had waiting tasks
	on      [MaxGPUs]int  // how many of its tasks are on each GPU

	key    float64
	cursor int
}

// Queue decides which tasks begin, where, and in which order. It is not safe for concurrent use.
// Times are since any instant, and never go back.
type Queue struct {
	cfg     Config
	gpus    []GPU
	tracked bool // whether occupancy is tracked
	tasks   map[TaskID]*task
	guests  map[fairshare.GuestID]*guest
	order   []*guest // those with waiting tasks
	growing []*task  // in order of their asking
	kept    [][]*task
	seq     uint64
	reached float64 // the least use among waiting guests, so far
	passed  time.Duration
	avail   []uint64
	unfit   []*task
	shrunk  bool // whether a GPU was lost since the last Begin
}

// NewQueue returns a queue for GPUs, of which there are at most [MaxGPUs].
func NewQueue(cfg Config, gpus []Spec) (*Queue, error) {
	if len(gpus) == 0 || len(gpus) > MaxGPUs {
		return nil, fmt.Errorf("place: %d GPUs: %w", len(gpus), ErrNoGPU)
	}
	if cfg.Placer == nil {
		cfg.Placer = Warps{}
	}
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Idle == 0 {
		cfg.Idle = DefaultIdle
	}
	q := &Queue{
		cfg: cfg, gpus: make([]GPU, len(gpus)), kept: make([][]*task, len(gpus)), avail: make([]uint64, len(gpus)),
		tasks: make(map[TaskID]*task), guests: make(map[fairshare.GuestID]*guest),
	}
	_, q.tracked = cfg.Placer.(Blocks)
	for i, s := range gpus {
		q.gpus[i].Spec, q.gpus[i].kind = s, slices.Index(gpus, s)
	}
	return q, nil
}

// GPUs returns the GPUs. Callers may set their Pinned, PinnedGuarantee and Busy, and read the rest.
// A task that waits is not refused if more is pinned than leaves room for it.
func (q *Queue) GPUs() []GPU { return q.gpus }

// Admit adds a guest, or changes one. It returns [ErrNoGPU] if no GPU could hold the guest's limit
// and has room for its guarantee beside those of guests outside of the queue.
func (q *Queue) Admit(now time.Duration, id fairshare.GuestID, g Guest) error {
	if !(g.Weight > 0) || g.Memory == 0 || g.Guarantee < 0 {
		return fmt.Errorf("place: guest %d: %w", id, ErrEmpty)
	}
	if g.GPUs == 0 {
		g.GPUs = ^Set(0)
	}
	if !slices.ContainsFunc(q.indexes(), func(i int) bool {
		d := &q.gpus[i]
		return g.GPUs.Has(i) && !d.lost && g.Memory <= d.Memory && d.PinnedGuarantee+g.Guarantee <= 1+slack
	}) {
		return fmt.Errorf("place: guest %d: limit %d bytes, guarantee %g: %w", id, g.Memory, g.Guarantee, ErrNoGPU)
	}
	old := q.guests[id]
	if old == nil {
		q.guests[id] = &guest{id: id, Guest: g, at: now, waited: now, used: q.reached}
		return nil
	}
	old.charge(now)
	for i := range q.gpus {
		if old.on[i] > 0 {
			q.gpus[i].guarantee += g.Guarantee - old.Guarantee
		}
	}
	// Its use counts as if it always had the weight.
	old.used = q.reached + (old.used-q.reached)*old.Weight/g.Weight
	old.Guest = g
	return nil
}

// slack is by how much guarantees may exceed a GPU for rounding.
const slack = 1e-9

// indexes returns 0, 1, … for the GPUs.
func (q *Queue) indexes() []int {
	is := make([]int, len(q.gpus))
	for i := range is {
		is[i] = i
	}
	return is
}

// Remove removes a guest with its tasks, which it returns in order of their numbers.
func (q *Queue) Remove(now time.Duration, id fairshare.GuestID) []TaskID {
	g := q.guests[id]
	if g == nil {
		return nil
	}
	var ids []TaskID
	for _, t := range q.tasks {
		if t.guest == g {
			ids = append(ids, t.id)
		}
	}
	slices.Sort(ids)
	for _, t := range ids {
		q.remove(now, q.tasks[t])
	}
	delete(q.guests, id)
	for _, t := range q.tasks {
		if t.by == g {
			t.by = nil
		}
	}
	return ids
}

// Submit adds a task, which waits for a GPU. It returns [ErrNoGPU] if no GPU could hold it, and
// [ErrLimit] if its guest may not have that much.
func (q *Queue) Submit(now time.Duration, id TaskID, of fairshare.GuestID, r Request) error {
	g, err := q.check(id, of, r)
	if err != nil {
		return err
	}
	t := q.add(now, id, g, r)
	q.wait(now, t)
	return nil
}

// Adopt adds a task that has r.Memory on a GPU already, as after a restart.
func (q *Queue) Adopt(now time.Duration, id TaskID, of fairshare.GuestID, r Request, gpu int) error {
	g, err := q.check(id, of, r)
	if err != nil {
		return err
	}
	if gpu < 0 || gpu >= len(q.gpus) || q.gpus[gpu].Free() < r.Memory {
		return fmt.Errorf("place: task %d: GPU %d, %d bytes: %w", id, gpu, r.Memory, ErrNoGPU)
	}
	t := q.add(now, id, g, r)
	q.put(now, t, gpu)
	return nil
}

// check returns the guest of a task that may be added.
func (q *Queue) check(id TaskID, of fairshare.GuestID, r Request) (*guest, error) {
	g := q.guests[of]
	switch {
	case g == nil:
		return nil, fmt.Errorf("place: guest %d: %w", of, ErrUnknown)
	case q.tasks[id] != nil:
		return nil, fmt.Errorf("place: task %d: %w", id, ErrExists)
	case r.Memory == 0:
		return nil, fmt.Errorf("place: task %d: %w", id, ErrEmpty)
	case !q.possible(g, r.Memory):
		return nil, fmt.Errorf("place: task %d: %d bytes: %w", id, r.Memory, ErrNoGPU)
	case r.counted() > g.Memory-min(g.asked, g.Memory) && (!r.Had || g.asked > 0):
		return nil, fmt.Errorf("place: task %d: %d bytes beside %d of %d: %w", id, r.Memory, g.asked, g.Memory, ErrLimit)
	}
	return g, nil
}

// possible reports whether a GPU could hold memory of a guest if no task were there.
func (q *Queue) possible(g *guest, memory uint64) bool {
	for i := range q.gpus {
		if q.could(i, g, memory) {
			return true
		}
	}
	return false
}

// could reports whether GPU i could hold memory of a guest if no task were there.
func (q *Queue) could(i int, g *guest, memory uint64) bool {
	d := &q.gpus[i]
	return g.GPUs.Has(i) && !d.lost && d.Pinned < d.Memory && memory <= d.Memory-d.Pinned &&
		d.PinnedGuarantee+g.Guarantee <= 1+slack
}

// add makes a task.
func (q *Queue) add(now time.Duration, id TaskID, g *guest, r Request) *task {
	q.seq++
	t := &task{id: id, guest: g, req: r, seq: q.seq, since: now, kept: -1}
	q.tasks[id] = t
	g.asked += t.req.counted()
	return t
}

// wait puts a task among those that wait, by order of submission.
func (q *Queue) wait(now time.Duration, t *task) {
	g := t.guest
	t.state, t.since = Waiting, now
	if len(g.waiting) == 0 {
		q.join(now, g)
		q.order = append(q.order, g)
	}
	i, _ := slices.BinarySearchFunc(g.waiting, t, func(a, b *task) int { return cmp.Compare(a.seq, b.seq) })
	g.waiting = slices.Insert(g.waiting, i, t)
}

// unwait takes a task from those that wait.
func (q *Queue) unwait(now time.Duration, t *task) {
	g := t.guest
	i, found := slices.BinarySearchFunc(g.waiting, t, func(a, b *task) int { return cmp.Compare(a.seq, b.seq) })
	if !found {
		return
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.waited = now
	q.unkeep(t)
}

// Free removes a task that has ended, wherever it is in its life.
func (q *Queue) Free(now time.Duration, id TaskID) error {
	t := q.tasks[id]
	if t == nil {
		return fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	}
	q.remove(now, t)
	return nil
}

// remove removes a task.
func (q *Queue) remove(now time.Duration, t *task) {
	switch t.state {
	case Waiting:
		q.unwait(now, t)
		if g := t.guest; len(g.waiting) == 0 {
			q.order = slices.DeleteFunc(q.order, func(o *guest) bool { return o == g })
		}
	case Parked:
	default:
		q.takeOff(now, t)
	}
	t.guest.asked -= t.req.counted()
	delete(q.tasks, t.id)
}
