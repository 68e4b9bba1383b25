package abi

import "testing"

// BenchmarkCalibrate is the copying that no ring can do without: 64 bytes out and 64 bytes back.
func BenchmarkCalibrate(b *testing.B) {
	ring := make([]byte, 128*EntrySize)
	var e Entry
	i := 0
	for b.Loop() {
		off := (i & 127) * EntrySize
		e = *(*Entry)(ring[off : off+EntrySize])
		*(*Entry)(ring[off : off+EntrySize]) = e
		i++
	}
}

// BenchmarkNop is one command's whole way through both rings on one processor, in batches of 32:
// encode, publish, fetch, decode, complete, publish, consume.
func BenchmarkNop(b *testing.B) {
	p := newPair(b, 128)
	buf := make([]Entry, MaxMore+1)
	comps := make([]Completion, 64)
	const batch = 32
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		for j := range batch {
			e := p.sw.Next()
			Header{Op: OpNop, Cookie: uint64(i + j)}.Encode(e)
			Empty{}.Encode(e)
		}
		p.sw.Publish()
		n, err := p.sr.Fetch(buf)
		if n != batch || err != nil {
			b.Fatal(n, err)
		}
		for j := range buf[:n] {
			h, err := DecodeHeader(&buf[j])
			if err == nil {
				_, err = DecodeEmpty(&buf[j])
			}
			if err != nil {
				b.Fatal(err)
			}
			e, err := p.cw.Next()
			if e == nil {
				b.Fatal("no room", err)
			}
			(&Completion{Op: h.Op, Cookie: h.Cookie, Seq: uint64(i + j)}).Encode(e)
		}
		p.cw.Publish()
		if n, _, err := p.cr.Fetch(comps); n != batch || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkDecodeLaunch(b *testing.B) {
	var e Entry
	Header{Op: OpLaunch, Cookie: 1}.Encode(&e)
	Launch{Function: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}.Encode(&e)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeHeader(&e); err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeLaunch(&e); err != nil {
			b.Fatal(err)
		}
	}
}
