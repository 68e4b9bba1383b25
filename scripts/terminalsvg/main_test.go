package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// texts returns the content of the picture's text elements, and fails the test if the picture is
// not well-formed XML.
func texts(t *testing.T, svg []byte) (lines []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				lines = append(lines, strings.ReplaceAll(string(token), "\u00a0", " "))
			}
		}
	}
}

func TestDraw(t *testing.T) {
	svg, err := draw("make demo", "\n  GUEST  SHARE\n\n   a<b&c  14.3%\n")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(texts(t, svg), "|")
	if want := "make demo|  GUEST  SHARE|   a<b&c  14.3%"; got != want {
		t.Errorf("the picture says %q, want %q", got, want)
	}
}

func TestDrawRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":     {"\n\n", "no text"},
		"colours":     {"a\n\x1b[31mred", "line 2 has control characters"},
		"no UTF-8":    {"\xff", "line 1 has control characters"},
		"a long line": {strings.Repeat("x", 201), "line 1 is longer than 200 columns"},
		"many lines":  {strings.Repeat("x\n", 201), "201 lines"},
	} {
		if _, err := draw("", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
