package vfiouser_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// FuzzServerMessages sends any bytes to a server, as they are and again as the payloads of
// well-formed messages. It checks that the server sends only replies, that it ends when the client
// stops sending, and that the device is told of every client's end.
func FuzzServerMessages(f *testing.F) {
	version := vfiousertest.Encode(vfiouser.Header{ID: 1, Cmd: vfiouser.CmdVersion}, []byte(qemuVersion))
	f.Add([]byte(nil))
	f.Add(version[:100])
	f.Add(append(version, 0xff))
	var attach []byte
	for i, s := range qemuAttach() {
		attach = append(attach, vfiousertest.Encode(vfiouser.Header{ID: uint16(i), Cmd: s.cmd}, s.payload)...)
	}
	f.Add(attach)
	for _, p := range [][]byte{
		access(0, 0, 4), access(7, 0, 4, 1, 2, 3, 4), irqSet(boolean|trigger, 1, 0, 2, 1, 0), irqSet(none|mask, 1, 3, 5),
		multi(2, vfiouser.WriteMultiEntry{Count: 4}, vfiouser.WriteMultiEntry{Region: 7, Offset: 4, Count: 2}),
		dmaMap(3, 0, 0, 4096), dmaUnmap(2, 0, 0), enc(&vfiouser.RegionInfo{Argsz: 80, Index: 4}),
	} {
		var all []byte
		for cmd := range uint16(20) {
			all = append(all, vfiousertest.Encode(vfiouser.Header{ID: cmd, Cmd: cmd}, p)...)
		}
		f.Add(append(bytes.Clone(version), all...))
	}
	dev := newPCIDevice(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		fuzzServer(t, dev, in)
		fuzzServer(t, dev, append(bytes.Clone(version), wellFormed(in)...))
	})
}

// wellFormed cuts bytes into messages with correct sizes: a length, a command and flags, then the
// payload.
func wellFormed(in []byte) []byte {
	var out []byte
	for id := uint16(2); len(in) >= 3; id++ {
		n, cmd, flags := int(in[0]), uint16(in[1]%20), uint32(in[2]&0x30)
		in = in[3:]
		n = min(n, len(in))
		out = append(out, vfiousertest.Encode(vfiouser.Header{ID: id, Cmd: cmd, Flags: flags}, in[:n])...)
		in = in[n:]
	}
	return out
}

func fuzzServer(t *testing.T, dev *pciDevice, in []byte) {
	client, server := vfiousertest.Sockets(t)
	srv := &vfiouser.Server{Device: dev, Log: quiet()}
	before, gone, _ := dev.Counts()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeConn(t.Context(), server)
	}()
	go func() {
		_ = client.SetWriteDeadline(time.Now().Add(20 * time.Second))
		_, _ = client.Write(in)
		_ = client.CloseWrite()
	}()
	_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
	out, _ := io.ReadAll(client) // a reset may cut the output short, if the server closed with bytes unread
	<-done
	for len(out) >= vfiouser.SizeofHeader {
		var h vfiouser.Header
		h.UnmarshalBytes(out)
		if int(h.Size) < vfiouser.SizeofHeader || h.Size > vfiouser.MaxMessageBytes || h.Flags&^vfiouser.FlagError != vfiouser.FlagTypeReply ||
			(h.Flags&vfiouser.FlagError != 0) != (h.Errno != 0) {
			t.Fatalf("reply %+v with %d bytes left", h, len(out))
		}
		out = out[min(int(h.Size), len(out)):]
	}
	if a, d, _ := dev.Counts(); a-before != d-gone {
		t.Fatalf("attached %d times, detached %d times", a-before, d-gone)
	}
	client.Close()
}

// FuzzClientReplies makes a server answer a client's requests with any bytes.
func FuzzClientReplies(f *testing.F) {
	f.Add(enc(&vfiouser.DeviceInfo{Argsz: 16}))
	f.Add(enc(&vfiouser.RegionInfo{Argsz: 80, Flags: 15, CapOffset: 32, Size: 1 << 20},
		append(enc(&vfiouser.SparseMmap{Header: vfiouser.CapHeader{ID: 1, Version: 1}, NumAreas: 1}), enc(&vfiouser.SparseMmapArea{Size: 4096})...)...))
	f.Add(enc(&vfiouser.RegionInfo{Argsz: 80, Flags: 15, CapOffset: 32, Size: 1 << 20}, enc(&vfiouser.CapHeader{ID: 2, Next: 40}, enc(&vfiouser.CapHeader{ID: 2, Next: 32})...)...))
	f.Add(binary.LittleEndian.AppendUint64(access(0, 0, 8), 5))
	f.Fuzz(func(t *testing.T, in []byte) {
		ours, theirs := vfiousertest.Sockets(t)
		server := vfiousertest.NewRaw(t, theirs)
		go answerWith(server, in)
		c, err := vfiouser.NewClient(t.Context(), ours, vfiouser.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.DeviceInfo()
		if info, areas, err := c.RegionInfo(0); err == nil {
			for _, a := range areas {
				if a.Offset > info.Size || a.Size > info.Size-a.Offset {
					t.Errorf("area %+v of %+v", a, info)
				}
			}
		}
		_, _ = c.IRQInfo(1)
		_, _ = c.ReadUint64(0, 0)
		_ = c.WriteUint32(0, 0, 0)
		_ = c.DMAUnmapAll()
		_ = c.Reset()
	})
}

// answerWith answers VERSION correctly and everything else with the same payload, until the client
// disconnects.
func answerWith(server *vfiousertest.Raw, payload []byte) {
	head := make([]byte, vfiouser.SizeofHeader)
	for {
		if _, err := io.ReadFull(server.Conn, head); err != nil {
			return
		}
		var h vfiouser.Header
		h.UnmarshalBytes(head)
		if _, err := io.CopyN(io.Discard, server.Conn, int64(h.Size)-vfiouser.SizeofHeader); err != nil {
			return
		}
		p := payload
		if h.Cmd == vfiouser.CmdVersion {
			p = []byte{0, 0, 0, 0}
		}
		if _, err := server.Conn.Write(reply(h, 0, p)); err != nil {
			return
		}
	}
}
