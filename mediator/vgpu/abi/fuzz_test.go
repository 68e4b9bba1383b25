package abi

import (
	"encoding/binary"
	"errors"
	"testing"
)

// FuzzDecodeEntry decodes any 64 bytes as any form: an accepted entry is encoded to the same bytes.
func FuzzDecodeEntry(f *testing.F) {
	for i, c := range Commands {
		var e Entry
		Header{Op: c.Op, Cookie: uint64(i)}.Encode(&e)
		f.Add(e[:])
	}
	f.Add(make([]byte, EntrySize))
	var preempt Entry
	attribute := Preempt{PreemptCoarse, 8, 1}.Attribute()
	attribute.Encode(&preempt)
	f.Add(preempt[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		copy(e[:], b)
		checkDecodePreempt(t, &e)
		h, err := DecodeHeader(&e)
		if err != nil {
			if !errors.Is(err, StatusMalformed) && !errors.Is(err, StatusUnsupportedVersion) {
				t.Fatalf("error without a status: %v", err)
			}
			return
		}
		back := e
		h.Encode(&back)
		check := func(x interface{ Encode(*Entry) }, err error) {
			if err != nil {
				if !errors.Is(err, StatusMalformed) {
					t.Fatalf("error without a status: %v", err)
				}
				return
			}
			if x.Encode(&back); back != e {
				t.Fatalf("%v decoded to %+v:\n% x\n% x", h.Op, x, e, back)
			}
		}
		switch h.Op.Command().Form {
		case FormEmpty:
			x, err := DecodeEmpty(&e)
			check(x, err)
		case FormHandle:
			x, err := DecodeHandle(&e)
			check(x, err)
		case FormQuery:
			x, err := DecodeQuery(&e)
			check(x, err)
		case FormLookup:
			x, err := DecodeLookup(&e)
			check(x, err)
		case FormWindow:
			x, err := DecodeWindowArg(&e)
			check(x, err)
		case FormAlloc:
			x, err := DecodeAlloc(&e)
			check(x, err)
		case FormTransfer:
			x, err := DecodeTransfer(&e)
			check(x, err)
		case FormCopy3D:
			x, err := DecodeCopy3D(&e)
			check(x, err)
		case FormSet:
			x, err := DecodeSet(&e)
			check(x, err)
		case FormModule:
			x, err := DecodeModule(&e)
			check(x, err)
		case FormOccupancy:
			x, err := DecodeOccupancy(&e)
			check(x, err)
		case FormLaunch:
			x, err := DecodeLaunch(&e)
			check(x, err)
		case FormElapsed:
			x, err := DecodeElapsed(&e)
			check(x, err)
		case FormMapping:
			x, err := DecodeMapping(&e)
			check(x, err)
		case FormPoint:
			x, err := DecodePoint(&e)
			check(x, err)
		case FormArray:
			x, err := DecodeArray(&e)
			check(x, err)
		case FormArrayCopy:
			x, err := DecodeArrayCopy(&e)
			check(x, err)
		case FormTexture:
			x, err := DecodeTexture(&e)
			check(x, err)
		case FormBinding:
			x, err := DecodeBinding(&e)
			check(x, err)
		default:
			t.Fatalf("%v has a form without a decoder", h.Op)
		}
	})
}

// FuzzRing lets a guest write anything anywhere in its shared memory between the host's steps.
// Input: records of what to do (1 byte), where (2 bytes), what (4 bytes). The host must neither
// panic nor loop, and must see only whole commands.
func FuzzRing(f *testing.F) {
	rec := func(op byte, at uint16, v uint32) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{op}, at)
		return binary.LittleEndian.AppendUint32(b, v)
	}
	f.Add(append(rec(0, SubmissionPutWord, 5), rec(2, 0, 0)...))
	f.Add(append(rec(0, SubmissionPutWord, 129), rec(2, 0, 0)...))
	f.Add(append(append(rec(1, headerMore, 64), rec(0, SubmissionPutWord, 3)...), rec(2, 0, 0)...))
	f.Add(append(append(rec(3, 0, 3), rec(0, CompletionGetWord, 2)...), rec(3, 0, 200)...))
	f.Add(append(rec(0, CompletionGetWord, ^uint32(0)), rec(3, 0, 200)...))
	f.Add(append(rec(0, SubmissionGetWord, 77), rec(4, 0, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newPair(t, 128)
		buf := make([]Entry, MaxMore+1)
		for ; len(data) >= 7; data = data[7:] {
			at, v := int(binary.LittleEndian.Uint16(data[1:])), binary.LittleEndian.Uint32(data[3:])
			switch data[0] % 5 {
			case 0:
				StoreWord(p.page, at%PageSize&^3, v)
			case 1:
				binary.LittleEndian.PutUint32(p.sub[at%len(p.sub)&^3:], v)
			case 2:
				n, err := p.sr.Fetch(buf)
				if err != nil {
					if !errors.Is(err, ErrorPutRange) && !errors.Is(err, ErrorTorn) {
						t.Fatalf("Fetch: %v", err)
					}
					return // the channel has failed
				}
				for i := 0; i < n; {
					i += Span(&buf[i])
					if i > n {
						t.Fatal("a command without all its entries")
					}
				}
			case 3:
				for range v % 256 {
					e, err := p.cw.Next()
					if err != nil {
						if !errors.Is(err, ErrorGetRange) {
							t.Fatalf("Next: %v", err)
						}
						return
					}
					if e == nil {
						p.cw.Publish()
						p.cw.ArmRoom()
						break
					}
					(&Completion{}).Encode(e)
				}
				p.cw.Publish()
			case 4:
				p.sr.Arm()
			}
		}
	})
}

// FuzzDecodeTaskRequest decodes any row of the task table: what is accepted is within bounds and
// makes the same row, and what is refused has a reason.
func FuzzDecodeTaskRequest(f *testing.F) {
	for _, q := range []TaskRequest{{}, {Memory: 1}, {Memory: maxTaskMemory, Blocks: 1 << 31, Threads: MaxTaskThreads}, {Memory: 1<<64 - 1}, {Memory: 1, Threads: 1}} {
		w := q.Encode()
		f.Add(w[0], w[1], w[2], w[3], w[4])
	}
	f.Fuzz(func(t *testing.T, lo, hi, blocks, threads, flags uint32) {
		w := TaskRequestWords{lo, hi, blocks, threads, flags}
		q, code := DecodeTaskRequest(&w)
		switch {
		case code != ErrorNone && q != TaskRequest{}:
			t.Fatalf("refused (%v), and decoded to %+v", code, q)
		case code != ErrorNone:
		case q.Encode() != w:
			t.Fatalf("%v decoded to %+v, which encodes to %v", w, q, q.Encode())
		case q.Memory == 0 || q.Memory > maxTaskMemory || q.Threads > MaxTaskThreads || q.Blocks > 0 && q.Threads == 0:
			t.Fatalf("%+v was accepted", q)
		}
	})
}
