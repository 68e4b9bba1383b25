// Command terminalsvg draws what a program printed as a picture of a terminal, for the README:
//
//	vgpud demo | terminalsvg -title 'make demo' -o docs/demo.svg
//
// It reads plain text from standard input and refuses control characters, so the program must have
// been run without a terminal.
package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The geometry of the picture, in SVG's user units, which are pixels at scale 1.
const (
	charWidth  = 7.25 // of the 12-pixel monospace font
	lineHeight = 17
	margin     = 16
	titleBar   = 30
	maxLines   = 200
	maxColumns = 200
)

func main() {
	title := flag.String("title", "", "the text of the title bar")
	out := flag.String("o", "", "the file to write; empty: standard output")
	flag.Parse()
	if err := run(os.Stdin, *title, *out); err != nil {
		fmt.Fprintln(os.Stderr, "terminalsvg:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, title, out string) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	svg, err := draw(title, string(text))
	if err != nil {
		return err
	}
	if out == "" {
		_, err = os.Stdout.Write(svg)
		return err
	}
	return os.WriteFile(out, svg, 0o644)
}

// draw returns the picture of a terminal that shows text. It returns an error if the text is empty,
// is not UTF-8, has control characters other than line feeds, or is larger than 200 lines of 200
// columns.
func draw(title, text string) ([]byte, error) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil, fmt.Errorf("there is no text to draw")
	}
	if len(lines) > maxLines {
		return nil, fmt.Errorf("%d lines: at most %d can be drawn", len(lines), maxLines)
	}
	columns := utf8.RuneCountInString(title) + 12
	for i, line := range lines {
		if !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
			return nil, fmt.Errorf("line %d has control characters: run the program without a terminal", i+1)
		}
		if columns = max(columns, utf8.RuneCountInString(line)); columns > maxColumns {
			return nil, fmt.Errorf("line %d is longer than %d columns", i+1, maxColumns)
		}
	}
	width := 2*margin + int(float64(columns)*charWidth)
	height := titleBar + 2*margin + len(lines)*lineHeight
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#1b1f27"/>`+"\n", width, height)
	for i, colour := range []string{"#ec6a5e", "#f4bf4f", "#61c554"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="15" r="5" fill="%s"/>`+"\n", margin+4+18*i, colour)
	}
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="12" xml:space="preserve">` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="19" text-anchor="middle" fill="#8b93a3">%s</text>`+"\n", width/2, escape(title))
	for i, line := range lines {
		if line == "" {
			continue
		}
		// textLength keeps columns aligned whatever font the viewer has.
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%.0f" fill="#d7dce5">%s</text>`+"\n",
			margin, titleBar+margin+(i+1)*lineHeight-5, float64(utf8.RuneCountInString(line))*charWidth, escape(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes(), nil
}

// escape returns text as the content of an XML element. Spaces become no-break spaces, which every
// viewer keeps.
func escape(text string) string {
	var b strings.Builder
	// A strings.Builder returns no errors.
	_ = xml.EscapeText(&b, []byte(strings.ReplaceAll(text, " ", "\u00a0")))
	return b.String()
}
