package cuda

// jitLog is what a program asked for of the compiler's messages.
type jitLog struct {
	info, errors         []byte  // the program's buffers
	infoSize, errorsSize *uint64 // where their sizes were, and the lengths go
	message              string
}

// newJITLog reads the options of a function that compiles. Options that say how to compile have no
// effect: the host's compiler decides.
func newJITLog(n uint32, options *uint32, values *Pointer) (*jitLog, Result) {
	l := &jitLog{}
	if n == 0 {
		return l, Success
	}
	if options == nil || values == nil || n > 64 {
		return nil, ErrorInvalidValue
	}
	var info, errors Pointer
	vals := array(values, uint64(n))
	sizes := words64(values, uint64(n))
	for i, option := range array(options, uint64(n)) {
		switch option {
		case JitInfoLogBuffer:
			info = vals[i]
		case JitErrorLogBuffer:
			errors = vals[i]
		case JitInfoLogBufferSizeBytes:
			l.infoSize = &sizes[i]
		case JitErrorLogBufferSizeBytes:
			l.errorsSize = &sizes[i]
		case JitWallTime:
			putFloat(&sizes[i], 0)
		}
	}
	if info != nil && l.infoSize != nil {
		l.info = hostBytes(info, uint64(uint32(*l.infoSize)))
	}
	if errors != nil && l.errorsSize != nil {
		l.errors = hostBytes(errors, uint64(uint32(*l.errorsSize)))
	}
	return l, Success
}

// failed keeps the compiler's messages about an image that was refused.
func (l *jitLog) failed(message string) { l.message = message }

// finish writes the messages into the program's buffers, and their lengths.
func (l *jitLog) finish() {
	l.write(l.info, l.infoSize, "")
	l.write(l.errors, l.errorsSize, l.message)
}

func (l *jitLog) write(b []byte, size *uint64, text string) {
	if size == nil {
		return
	}
	n := 0
	if len(b) > 0 {
		n = copy(b[:len(b)-1], text)
		b[n] = 0
	}
	*size = uint64(n)
}
