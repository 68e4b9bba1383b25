package vfiouser_test

import (
	"testing"

	"pgregory.net/rapid"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// modelVector is the expected state of a vector: the eventfd that it signals (-1 for none), and
// whether signals are held back.
type modelVector struct {
	event           int
	masked, pending bool
}

// Interrupts under random requests follow the model: every trigger arrives once, at the eventfd
// that was set last, at once or after unmasking, and never elsewhere.
func TestInterruptsFollowTheModel(t *testing.T) {
	const vectors, events = 5, 3
	dev := gpuLike(t)
	dev.Desc.IRQs[vfiouser.IRQMSI].Count = vectors
	c := vfiousertest.Client(t, dev)
	ev := eventfds(t, events)
	s := dev.Session()
	rapid.Check(t, func(t *rapid.T) {
		var model [vectors]modelVector
		for i := range model {
			model[i].event = -1
		}
		var want [events]uint64
		raise := func(i int) {
			v := &model[i]
			switch {
			case v.event < 0:
			case v.masked:
				v.pending = true
			default:
				want[v.event]++
			}
		}
		set := func(flags uint32, start, count int, data []byte, fds ...int) {
			req := vfiouser.IRQSet{Flags: flags, Index: vfiouser.IRQMSI, Start: uint32(start), Count: uint32(count)}
			if err := c.SetIRQs(req, data, fds); err != nil {
				t.Fatal(err)
			}
		}
		span := func(t *rapid.T) (start, count int) {
			start = rapid.IntRange(0, vectors-1).Draw(t, "start")
			return start, rapid.IntRange(1, vectors-start).Draw(t, "count")
		}
		// choose sends one of the requests that select vectors, and calls f for each selected
		// vector.
		choose := func(t *rapid.T, action uint32, f func(i int)) {
			start, count := span(t)
			if rapid.Bool().Draw(t, "all") {
				set(none|action, start, count, nil)
				for i := range count {
					f(start + i)
				}
				return
			}
			data := rapid.SliceOfN(rapid.ByteRange(0, 1), count, count).Draw(t, "chosen")
			set(boolean|action, start, count, data)
			for i, b := range data {
				if b != 0 {
					f(start + i)
				}
			}
		}
		set(none|trigger, 0, 0, nil)
		t.Repeat(map[string]func(*rapid.T){
			"enable": func(t *rapid.T) {
				start, count := span(t)
				var fds []int
				for i := range count {
					e := rapid.IntRange(0, events-1).Draw(t, "event")
					fds = append(fds, ev[e].FD())
					model[start+i].event = e
				}
				set(event|trigger, start, count, nil, fds...)
			},
			"disable": func(t *rapid.T) {
				start, count := span(t)
				set(event|trigger, start, count, nil)
				for i := range count {
					model[start+i] = modelVector{event: -1}
				}
			},
			"mask": func(t *rapid.T) { choose(t, mask, func(i int) { model[i].masked = true }) },
			"unmask": func(t *rapid.T) {
				choose(t, unmask, func(i int) {
					v := &model[i]
					v.masked = false
					if v.pending {
						v.pending = false
						raise(i)
					}
				})
			},
			"trigger by message": func(t *rapid.T) { choose(t, trigger, raise) },
			"trigger": func(t *rapid.T) {
				i := rapid.IntRange(0, vectors-1).Draw(t, "vector")
				if got := s.Trigger(vfiouser.IRQMSI, uint32(i)); got != (model[i].event >= 0) {
					t.Fatalf("vector %d is listened to: %t", i, got)
				}
				raise(i)
			},
			"": func(t *rapid.T) {
				for i, e := range ev {
					if got := raised(t, e); got != want[i] {
						t.Fatalf("eventfd %d was raised %d times, want %d; model %+v", i, got, want[i], model)
					}
					want[i] = 0
				}
			},
		})
	})
}
