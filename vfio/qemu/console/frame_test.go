package console

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// frame returns the frame of m.
func frame(t testing.TB, m Message) []byte {
	t.Helper()
	b, err := appendFrame(nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll returns the messages on a line, and everything else.
func readAll(t testing.TB, r io.Reader) (all []Message, noise []byte) {
	t.Helper()
	in := NewReader(r)
	in.Noise = func(p []byte) { noise = append(noise, p...) }
	for {
		m, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all, noise
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

var someMessage = Message{Boot: 0xfeed, Number: 3, Kind: Output, Program: 7, Stream: Stderr, Data: []byte("a\x1e\x00\n\xff")}

func TestWhatIsNoMessageIsPassedOver(t *testing.T) {
	good := string(frame(t, someMessage))
	other := string(frame(t, Message{Kind: Hello, Text: "x"}))
	flipped := strings.Replace(good, "feed", "fefd", 1)
	flipped = flipped[:len(flipped)-4] + "~" + flipped[len(flipped)-3:]
	for _, c := range []struct {
		name, line, noise string
		want              int
	}{
		{"nothing", "", "", 0},
		{"a message", good, "", 1},
		{"two", good + good, "", 2},
		{"a carriage return before the end", good[:len(good)-1] + "\r\n", "", 1},
		{"a kernel's line before", "[    1.0] Linux\n" + good, "[    1.0] Linux\n", 1},
		{"half a line before", "SeaBIOS " + good, "SeaBIOS ", 1},
		{"half a message before", other[:9] + good, other[:9], 1},
		{"a kernel's line within", good[:20] + "[    1.0] Linux\n" + good[20:] + good, good[:20] + "[    1.0] Linux\n" + good[20:], 1},
		{"a flipped bit", flipped + good, flipped, 1},
		{"no checksum", "\x1e{}\n\x1e\n\x1e12345678\n", "\x1e{}\n\x1e\n\x1e12345678\n", 0},
		{"an end without a line", good + good[:10], good[:10], 1},
		{"a line without end", strings.Repeat("x", 5*MaxFrame) + good, strings.Repeat("x", 5*MaxFrame), 1},
		{"messages without end", strings.Repeat(good[:len(good)-1], 500) + good, strings.Repeat(good[:len(good)-1], 500), 1},
		{"marks without end", strings.Repeat("\x1e", 3*MaxFrame) + good, strings.Repeat("\x1e", 3*MaxFrame), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.line), iotest.OneByteReader(strings.NewReader(c.line))} {
				all, noise := readAll(t, r)
				if len(all) != c.want || string(noise) != c.noise {
					t.Errorf("%d messages and noise %q, want %d and %q", len(all), noise, c.want, c.noise)
				}
				for _, m := range all {
					if d := cmp.Diff(someMessage, m); d != "" {
						t.Error("-want +got", d)
					}
				}
			}
		})
	}
}

func TestTooLongAMessageIsRefused(t *testing.T) {
	m := Message{Kind: Run, Args: []string{strings.Repeat("x", MaxFrame)}}
	if _, err := appendFrame(nil, &m); err == nil {
		t.Error("it is accepted")
	}
	// The largest message that Process and Server send.
	frame(t, Message{Boot: 1<<32 - 1, Number: 1<<32 - 1, Kind: Output, Program: 1<<32 - 1, Stream: Stderr, Data: make([]byte, MaxChunk)})
}

// Each message arrives once and unchanged, whatever surrounds it.
func TestMessagesArriveAmongNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line []byte
		var want []Message
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			// Noise within a message has no LF, since that would break it.
			line = append(line, rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "noise")...)
			m := Message{
				Boot: rapid.Uint32().Draw(t, "boot"), Number: rapid.Uint32().Draw(t, "number"), Kind: Output,
				Program: rapid.Uint32().Draw(t, "program"), Text: rapid.String().Draw(t, "text"),
				Data: rapid.SliceOfN(rapid.Byte(), 1, MaxChunk).Draw(t, "data"),
			}
			b, err := appendFrame(nil, &m)
			if err != nil {
				continue
			}
			line, want = append(line, b...), append(want, m)
		}
		in := NewReader(iotest.HalfReader(bytes.NewReader(line)))
		for _, w := range want {
			got, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Fatal("-want +got", d)
			}
		}
	})
}

// Nothing on a line makes a reader panic, keep more than its limit, or miss the next message.
func FuzzReader(f *testing.F) {
	good := frame(f, someMessage)
	f.Add([]byte{})
	f.Add(good)
	f.Add(good[:20])
	f.Add([]byte("\x1e00000000{}\n"))
	f.Add([]byte("\x1e"))
	f.Add(bytes.Repeat([]byte{rs}, MaxFrame))
	f.Fuzz(func(t *testing.T, p []byte) {
		before, _ := readAll(t, bytes.NewReader(p))
		all, noise := readAll(t, bytes.NewReader(append(p[:len(p):len(p)], good...)))
		if len(all) == 0 || cmp.Diff(someMessage, all[len(all)-1]) != "" {
			t.Fatalf("the message after is missed: %v", all)
		}
		if len(all) != len(before)+1 {
			t.Fatalf("%d messages alone, %d with one more", len(before), len(all))
		}
		if len(noise) > len(p) {
			t.Fatalf("%d bytes of noise in %d", len(noise), len(p))
		}
	})
}
