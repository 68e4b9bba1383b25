package vgpu_test

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
)

// FuzzDevice makes any accesses to the whole device, registers, configuration and shared memory,
// with resets and the backend's answers in between. Input: records of a kind, an offset (3 bytes),
// a length and as much data.
func FuzzDevice(f *testing.F) {
	record := func(kind byte, offset int, data ...byte) []byte {
		return append([]byte{kind, byte(offset), byte(offset >> 8), byte(offset >> 16), byte(len(data))}, data...)
	}
	word := func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
	context := append(record(fuzzRegister, abi.RegSelectVersion, word(uint32(abi.Newest))...),
		record(fuzzRegister, abi.ContextSlot(0, abi.ContextControl), word(uint32(abi.ControlCreate))...)...)
	context = append(context, record(fuzzAnswer, 1)...)
	f.Add(context)
	channel := context
	for reg, v := range map[int]uint32{
		abi.ChannelSubmissionLo: 9 << 12, abi.ChannelSubmissionEntries: 128,
		abi.ChannelCompletionLo: 11 << 12, abi.ChannelCompletionEntries: 128,
	} {
		channel = append(channel, record(fuzzRegister, abi.ChannelSlot(0, reg), word(v)...)...)
	}
	channel = append(channel, record(fuzzRegister, abi.ChannelSlot(0, abi.ChannelControl), word(uint32(abi.ControlCreate))...)...)
	f.Add(channel)
	f.Add(append(channel, record(fuzzRegister, abi.Doorbell(0), 1, 2, 3)...))
	f.Add(append(channel, record(fuzzReset, 0)...))
	old := record(fuzzRegister, abi.RegSelectVersion, word(uint32(abi.Version1_0))...)
	f.Add(append(old, channel[len(old):]...))
	f.Add(record(fuzzConfig, pci.Command, 0xff, 0xff, 0xff, 0xff))
	f.Add(record(fuzzConfig, 0x48, 0, 0x80))
	f.Add(record(fuzzShared, 0, make([]byte, 64)...))
	f.Add(record(fuzzRegister, abi.RegReset, 'R', 'E', 'S', 'T'))
	path := filepath.Join(f.TempDir(), "vgpu.sock")
	f.Fuzz(func(t *testing.T, in []byte) {
		h := newHostile(t, path)
		defer h.close(t)
		h.attach(t)
		defer h.detach(t)
		for len(in) >= 5 {
			kind, at, n := in[0]%fuzzKinds, uint64(in[1])|uint64(in[2])<<8|uint64(in[3])<<16, min(int(in[4]), len(in)-5)
			data := in[5 : 5+n]
			in = in[5+n:]
			switch kind {
			case fuzzRegister:
				fuzzAccess(t, h, vfiouser.RegionBAR0, at%(abi.BAR0Size-256), data)
			case fuzzConfig:
				fuzzAccess(t, h, vfiouser.RegionConfig, at%(pci.ExtendedSpaceBytes-256), data)
			case fuzzShared:
				fuzzAccess(t, h, vfiouser.RegionBAR2, at%(abi.MinSharedBytes-256), data)
			case fuzzAnswer:
				if unanswered := h.back.unanswered(); unanswered > 0 {
					h.back.answer(int(at>>1)%unanswered, at&1 != 0, abi.ErrorCode(n))
				} else {
					h.back.answerAgain(at&1 != 0, abi.ErrorCode(n))
				}
			case fuzzReset:
				if err := h.client.Reset(); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.back.check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Kinds of FuzzDevice's records.
const (
	fuzzRegister = iota
	fuzzConfig
	fuzzShared
	fuzzAnswer
	fuzzReset
	fuzzKinds
)

// fuzzAccess writes data and reads as many bytes.
func fuzzAccess(t *testing.T, h *hostile, region uint32, at uint64, data []byte) {
	h.write(t, region, at, data)
	h.read(t, region, at, len(data))
}
