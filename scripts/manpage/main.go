// Command manpage makes a manual page from a Markdown page of docs or from the comments of a YAML
// file, so that what is installed is what the repository says:
//
//	manpage -name vgpud.yaml -title 'the configuration of vgpud' -section Configuration docs/operations.md
//
// It knows the Markdown that docs uses and writes the page, of section 5 of the manual, to standard
// output.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	name := flag.String("name", "", "the page's name")
	title := flag.String("title", "", "what it describes, in a few words")
	section := flag.String("section", "", "only this section of the Markdown page")
	flag.Parse()
	if flag.NArg() != 1 || *name == "" || *title == "" {
		fmt.Fprintln(os.Stderr, "usage: manpage -name NAME -title TITLE [-section HEADING] FILE")
		os.Exit(2)
	}
	b, err := os.ReadFile(flag.Arg(0))
	if err == nil {
		text := string(b)
		if filepath.Ext(flag.Arg(0)) == ".yaml" {
			text = fromYAML(text)
		}
		if *section != "" {
			text, err = cut(text, *section)
		}
		if err == nil {
			_, err = os.Stdout.WriteString(page(*name, *title, text))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manpage:", err)
		os.Exit(1)
	}
}
