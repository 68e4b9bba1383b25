package nvreg

import "time"

// NV_PTIMER_TIME_0 and _1: nanoseconds in steps of 32. The low word has time bits 31:5 at 31:5, the
// high word bits 60:32 at 28:0.
const (
	PTimerTime0 = 0x009400
	PTimerTime1 = 0x009410

	ptimerStep = 32
)

// EncodeTime returns the two words that PTIMER shows at t.
func EncodeTime(t time.Duration) (time0, time1 uint32) {
	return uint32(t) &^ (ptimerStep - 1), uint32(uint64(t)>>32) & 0x1fffffff
}

// DecodeTime returns the time that the two words show.
func DecodeTime(time0, time1 uint32) time.Duration {
	return time.Duration(uint64(time1&0x1fffffff)<<32 | uint64(time0&^(ptimerStep-1)))
}

// ReadTime reads PTIMER: the high word, the low word, and both again until the high word is
// unchanged, since the low word wraps every 4.3 seconds. The loop is bounded for a clock that shows
// garbage.
func ReadTime(s Space) time.Duration {
	high := s.Load(PTimerTime1)
	for range 8 {
		low := s.Load(PTimerTime0)
		again := s.Load(PTimerTime1)
		if again == high {
			return DecodeTime(low, high)
		}
		high = again
	}
	return DecodeTime(0, high)
}

// StoreTime sets PTIMER. The low word is zeroed first, so that a reader between the stores sees the
// clock late, by up to the 4.3 seconds of the low word, and never early. The reader's check of the
// high word then makes it read again.
func (f File) StoreTime(t time.Duration) {
	low, high := EncodeTime(t)
	if f.Load(PTimerTime1) != high {
		f.Store(PTimerTime0, 0)
		f.Store(PTimerTime1, high)
	}
	f.Store(PTimerTime0, low)
}

// Calibrate returns the offset from the host's clock to the GPU's, and whether PTIMER ticks by
// itself. It reads PTIMER several times over settle, on the host's clock. A GPU's PTIMER has moved
// each time. The soft GPU's moves only when its status changes, so one pair of equal readings
// identifies it, and its clock is the host's. Otherwise the offset is that of the quickest reading,
// and half of the time that it took bounds the error.
func Calibrate(s Space, host func() time.Duration, settle time.Duration) (offset, bound time.Duration, ticks bool) {
	const tries = 16
	bound = time.Hour
	pause := max(settle/tries, time.Microsecond)
	last := ReadTime(s)
	for range tries {
		for start := host(); host()-start < pause; {
		}
		before := host()
		gpu := ReadTime(s)
		after := host()
		if gpu == last {
			return 0, 0, false
		}
		last = gpu
		if d := (after - before) / 2; d < bound {
			bound, offset = d, gpu-(before+d)
		}
	}
	return offset, bound + ptimerStep, true
}
