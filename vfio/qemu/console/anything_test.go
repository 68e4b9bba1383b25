package console

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// kinds are all kinds of messages, and one that does not exist.
var kinds = []Kind{Hello, Started, Output, Taken, Exited, Refused, Run, Input, Kill, Power, "none"}

// anyMessage generates a message of any kind, mostly of the current boot, about one of a few
// programs.
func anyMessage(boot, number uint32) *rapid.Generator[Message] {
	return rapid.Custom(func(t *rapid.T) Message {
		m := Message{
			Boot: boot, Number: number,
			Kind:    rapid.SampledFrom(kinds).Draw(t, "kind"),
			Program: rapid.Uint32Range(0, 3).Draw(t, "program"),
			Data:    rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "data"),
			Stream:  rapid.IntRange(-1, 3).Draw(t, "stream"),
			PID:     rapid.IntRange(-1, 2).Draw(t, "pid"),
			Status:  rapid.IntRange(-1, 1).Draw(t, "status"),
			Signal:  rapid.IntRange(-1, 70).Draw(t, "signal"),
			Args:    rapid.SliceOfN(rapid.SampledFrom([]string{"", "a"}), 0, 2).Draw(t, "args"),
			Text:    rapid.SampledFrom([]string{"", PowerOff, "x"}).Draw(t, "text"),
		}
		if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
			m.Boot, m.Number = rapid.Uint32().Draw(t, "boot"), rapid.Uint32().Draw(t, "number")
		}
		return m
	})
}

// write sends messages as they are.
func write(t *rapid.T, w io.Writer, all []Message) {
	for i := range all {
		b, err := appendFrame(nil, &all[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever a guest sends, each of a client's programs ends exactly once.
func TestAnyGuestIsTolerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host, guest := net.Pipe()
		c := NewClient(host, nil)
		go func() { _, _ = io.Copy(io.Discard, guest) }()
		write(t, guest, []Message{{Boot: 1, Kind: Hello}})
		if _, err := c.Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := c.Run(context.Background(), Command{Args: []string{"a"}, Stdin: []byte("b")})
				if err != nil {
					return
				}
				for range p.Lines() {
				}
				_ = p.Wait()
			})
		}
		for i := range uint32(rapid.IntRange(0, 30).Draw(t, "messages")) {
			write(t, guest, []Message{anyMessage(1, i+1).Draw(t, "message")})
		}
		guest.Close()
		wg.Wait()
		c.Close()
	})
}

// inMemory is a guest whose programs echo their input until they are killed.
type inMemory struct{}

func (inMemory) Power(string) error { return errors.New("no") }

func (inMemory) Start(args, _ []string) (Child, error) {
	if args[0] == "" {
		return Child{}, errors.New("no such program")
	}
	in, out := io.Pipe()
	ended := make(chan int, 1)
	var once sync.Once
	end := func(signal int) { once.Do(func() { ended <- signal; out.Close() }) }
	return Child{
		PID: 1, Stdin: out, Stdout: in, Stderr: io.NopCloser(strings.NewReader("e")),
		Wait: func() (int, int) { return 0, <-ended },
		Signal: func(n int) error {
			end(n)
			return nil
		},
	}, nil
}

// Whatever a host sends, a server goes on until the line ends, and leaves no program behind.
func TestAnyHostIsTolerated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host, guest := net.Pipe()
		s := Server{Guest: inMemory{}, Boot: 1}
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), guest) }()
		go func() { _, _ = io.Copy(io.Discard, host) }()
		for i := range uint32(rapid.IntRange(0, 30).Draw(t, "messages")) {
			write(t, host, []Message{anyMessage(1, i).Draw(t, "message")})
		}
		host.Close()
		<-served
		if len(s.programs) != 0 {
			t.Fatalf("%d programs are left", len(s.programs))
		}
	})
}
