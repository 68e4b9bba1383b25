package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// zeroes returns a library in which every function is C's labs, so that a call whose first argument
// is 0 succeeds. It tests the call path without a driver.
func zeroes(t testing.TB) *Library {
	t.Helper()
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		t.Skip("no libc.so.6:", err)
	}
	labs, err := purego.Dlsym(libc, "labs")
	if err != nil {
		t.Fatal(err)
	}
	var l Library
	for i := range l.fn {
		l.fn[i] = labs
	}
	return &l
}

// hotPath makes the calls of a launch and its end.
func hotPath(t testing.TB, l *Library, a *Args) {
	notReady := Event(ErrNotReady)
	for _, err := range []error{
		l.CtxSetCurrent(0),
		l.LaunchKernel(0, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, 1, a, 64),
		l.EventRecord(0, 1),
		l.StreamWriteValue64(0, 8, 9),
		l.MemcpyHtoDAsync(0, a.Params[:4], 1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if ready, err := l.EventQuery(notReady); ready || err != nil {
		t.Fatal(ready, err)
	}
}

func BenchmarkCall(b *testing.B) {
	l := zeroes(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := l.EventRecord(0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLaunchKernel(b *testing.B) {
	l, a := zeroes(b), NewArgs()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.LaunchKernel(0, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, 1, a, 64); err != nil {
			b.Fatal(err)
		}
	}
}

func TestResultsAreErrors(t *testing.T) {
	l := zeroes(t)
	err := l.CtxDestroy(700) // labs returns its argument
	if e, ok := errors.AsType[Error](err); !ok || e != ErrIllegalAddress || !e.Sticky() || e.Lost() {
		t.Errorf("%v", err)
	}
	if want := "CUDA_ERROR_ILLEGAL_ADDRESS (700)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if got := Error(12345).Error(); got != "CUDA_ERROR_12345 (12345)" {
		t.Error(got)
	}
	if ErrOutOfMemory.Sticky() || !ErrNoDevice.Sticky() || !ErrNoDevice.Lost() {
		t.Error("Sticky is wrong")
	}
}

// The sizes are cuda.h's, for 64 bits.
func TestLayouts(t *testing.T) {
	// Sizes and offsets of cuda.h on x86-64 and arm64.
	for what, n := range map[string][2]uintptr{
		"CUDA_ARRAY3D_DESCRIPTOR": {unsafe.Sizeof(Array3D{}), 40}, "its flags": {unsafe.Offsetof(Array3D{}.Flags), 32},
		"CUDA_ARRAY_DESCRIPTOR": {unsafe.Sizeof(Array2D{}), 24}, "CUDA_RESOURCE_DESC": {unsafe.Sizeof(ResourceDesc{}), 144},
		"its union": {unsafe.Offsetof(ResourceDesc{}.union), 8}, "CUDA_TEXTURE_DESC": {unsafe.Sizeof(TextureDesc{}), 104},
		"its border": {unsafe.Offsetof(TextureDesc{}.BorderColor), 40},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", what, n[0], n[1])
		}
	}
	if n := unsafe.Sizeof(Memcpy3D{}); n != 200 {
		t.Errorf("CUDA_MEMCPY3D has %d bytes, want 200", n)
	}
	var c Memcpy3D
	for name, o := range map[string][2]uintptr{
		"srcMemoryType": {unsafe.Offsetof(c.SrcMemoryType), 32}, "srcPitch": {unsafe.Offsetof(c.SrcPitch), 72},
		"dstXInBytes": {unsafe.Offsetof(c.DstXInBytes), 88}, "dstDevice": {unsafe.Offsetof(c.DstDevice), 136},
		"WidthInBytes": {unsafe.Offsetof(c.WidthInBytes), 176},
	} {
		if o[0] != o[1] {
			t.Errorf("%s at %d, want %d", name, o[0], o[1])
		}
	}
}

// On a host without the driver the error says what to install; a host with it has every function.
func TestOpen(t *testing.T) {
	l, err := Open()
	if err != nil {
		if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), Name) {
			t.Fatal(err)
		}
		return
	}
	if v, err := l.DriverGetVersion(); err != nil || v < MinVersion {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestFormatVersion(t *testing.T) {
	if got := FormatVersion(MinVersion); got != "12.4" {
		t.Error(got)
	}
}

func TestSymbolsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for i, name := range symbols {
		if name == "" || seen[name] {
			t.Errorf("function %d: name %q", i, name)
		}
		seen[name] = true
	}
}
