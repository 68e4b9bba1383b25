package vfiouser_test

import (
	"encoding/binary"
	"syscall"
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// codec is what every struct of the protocol has.
type codec interface {
	MarshalBytes([]byte)
	UnmarshalBytes([]byte)
}

// enc returns the bytes of a struct and what follows it.
func enc(v codec, more ...byte) []byte {
	b := make([]byte, binary.Size(v))
	v.MarshalBytes(b)
	return append(b, more...)
}

// refusals are requests and the error number that each must get.
type refusal struct {
	name    string
	payload []byte
	fds     []int
	want    syscall.Errno
}

func wantRefused(t *testing.T, r *vfiousertest.Raw, cmd uint16, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		if _, errno := r.Request(cmd, c.payload, c.fds...); errno != c.want {
			t.Errorf("%s: %v, want %v", c.name, errno, c.want)
		}
	}
}

func TestDeviceGetInfo(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	r := vfiousertest.Negotiated(t, gpuLike(t))
	wantRefused(t, r, vfiouser.CmdDeviceGetInfo, []refusal{
		{name: "no payload", want: syscall.EINVAL},
		{name: "short", payload: make([]byte, 8), want: syscall.EINVAL},
		{name: "bad argsz", payload: enc(&vfiouser.DeviceInfo{Argsz: 8}), want: syscall.EINVAL},
		{name: "long", payload: enc(&vfiouser.DeviceInfo{Argsz: 17}, 0), want: syscall.EINVAL},
	})
	for _, argsz := range []uint32{16, 32} {
		p, errno := r.Request(vfiouser.CmdDeviceGetInfo, enc(&vfiouser.DeviceInfo{Argsz: argsz}))
		if errno != 0 || len(p) != vfiouser.SizeofDeviceInfo {
			t.Fatalf("argsz %d: %d bytes, %v", argsz, len(p), errno)
		}
		var got vfiouser.DeviceInfo
		got.UnmarshalBytes(p)
		if want := (vfiouser.DeviceInfo{Argsz: 16, Flags: 3, NumRegions: 9, NumIRQs: 5}); got != want {
			t.Errorf("argsz %d: %+v, want %+v", argsz, got, want)
		}
	}
}
