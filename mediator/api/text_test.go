package api

import (
	"errors"
	"strings"
	"testing"
)

func FuzzCleanText(f *testing.F) {
	for _, s := range []string{"alice", "", " a\nb ", "\x1b[31mred", "=cmd()", "\u202eevil", "\xff\xfe", strings.Repeat("ä", 300), strings.Repeat("a", 254) + " b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := CleanText(s)
		if len(c) > MaxText || strings.ContainsAny(c, "\n\r\x1b\x00\u202e") || CleanText(c) != c {
			t.Errorf("%q becomes %q", s, c)
		}
		if err := CheckAccount(c, c); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckAccount(t *testing.T) {
	if err := CheckAccount("Åsa & Söhne <x>", ""); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"a\nb", "\x1b[0m", " a", "\xff", strings.Repeat("a", 256), "\u202eevil"} {
		if err := CheckAccount("", s); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "project ") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
