package vm

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// hang is an executor that reports a time limit for its first channel's kernel and ends.
func hang() error {
	conn, err := ipc.FromFile(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	if _, err := conn.Receive(); err != nil {
		return err
	}
	if err := conn.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		return err
	}
	var m ipc.Message
	for m.Kind != ipc.KindOpen {
		if m, err = conn.Receive(); err != nil {
			return err
		}
	}
	if err := conn.Send(ipc.Message{Kind: m.Kind, ID: m.ID}); err != nil {
		return err
	}
	f, err := ipc.NewMessage(ipc.KindFault, ipc.Fault{Code: uint32(abi.ErrorTimeLimit), Text: "time limit"})
	if err != nil {
		return err
	}
	return conn.Send(f)
}

// TestChannelsEndWithAHungExecutor checks that the guest learns of the kernel and of channels that
// are no longer served.
func TestChannelsEndWithAHungExecutor(t *testing.T) {
	b := testExecutors(t)
	b.command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=hang")
		return cmd
	}
	write := func(at int, v uint32) {
		t.Helper()
		if err := b.dev.RegionWrite(0, uint64(at), binary.LittleEndian.AppendUint32(nil, v)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(at int) uint32 {
		t.Helper()
		var p [4]byte
		if err := b.dev.RegionRead(0, uint64(at), p[:]); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint32(p[:])
	}
	await := func(at int, v uint32) {
		t.Helper()
		proctest.Until(t, fmt.Sprintf("register %#x is %d", at, v), func() bool { return read(at) == v })
	}
	write(abi.RegSelectVersion, uint32(abi.Newest))
	write(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	await(abi.ContextSlot(0, abi.ContextStatus), uint32(abi.ContextReady))
	header := uint32(abi.HeaderBytes(b.dev.Config().Channels))
	write(abi.ChannelSlot(0, abi.ChannelSubmissionLo), header)
	write(abi.ChannelSlot(0, abi.ChannelSubmissionEntries), 128)
	write(abi.ChannelSlot(0, abi.ChannelCompletionLo), header+uint32(abi.RingBytes(128)))
	write(abi.ChannelSlot(0, abi.ChannelCompletionEntries), 128)
	write(abi.ChannelSlot(0, abi.ChannelVector), abi.NoVector)
	write(abi.ChannelSlot(0, abi.ChannelControl), uint32(abi.ControlCreate))
	await(abi.ContextSlot(0, abi.ContextStatus), uint32(abi.ContextFaulted))
	await(abi.ChannelSlot(0, abi.ChannelStatus), uint32(abi.ChannelFailed))
	if e := abi.ErrorCode(read(abi.ContextSlot(0, abi.ContextError))); e != abi.ErrorTimeLimit {
		t.Errorf("the context's error is %v", e)
	}
}
