package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewMan returns the hidden command that writes a program's manual pages, of that section of the
// manual, from the same tree as its help. Installers call it.
func NewMan(root *cobra.Command, section string) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("want DIRECTORY, got %d arguments; see `%s man --help`", len(args), root.Name())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			return writePages(root, section, args[0])
		},
	}
}

// writePages writes the pages of a command and its subcommands. They have no date, so the same
// program always gives the same pages.
func writePages(c *cobra.Command, section, dir string) error {
	for _, below := range c.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(below, section, dir); err != nil {
			return err
		}
	}
	c.InitDefaultHelpFlag()
	name := filepath.Join(dir, pageName(c)+"."+section)
	if err := os.WriteFile(name, []byte(page(c, section)), 0o644); err != nil {
		return fmt.Errorf("write the manual: %w", err)
	}
	return nil
}

// pageName returns the name of a command's page: its words joined by dashes.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page returns a command's manual page in man(7)'s macros. cobra's own writer would make every
// start of a program pay for a Markdown parser.
func page(c *cobra.Command, section string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	program := c.Root().Name()
	line(`.TH "%s" "%s" "" "%s" "%s"`, strings.ToUpper(pageName(c)), section, program, program)
	line(".nh\n.SH NAME\n%s \\- %s", roff(pageName(c)), roff(c.Short))
	line(".SH SYNOPSIS\n\\fB%s\\fR", roff(c.UseLine()))
	about := c.Long
	if about == "" {
		about = c.Short
	}
	line(".SH DESCRIPTION")
	for i, paragraph := range strings.Split(strings.TrimSpace(about), "\n\n") {
		if i > 0 {
			line(".PP")
		}
		// Indented paragraphs are shown as they are.
		if strings.HasPrefix(paragraph, "  ") || strings.HasPrefix(paragraph, "\t") {
			line(".EX\n%s\n.EE", roff(paragraph))
		} else {
			line("%s", roff(paragraph))
		}
	}
	options := func(heading string, flags *pflag.FlagSet) {
		if !flags.HasAvailableFlags() {
			return
		}
		line(".SH %s", heading)
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			name := `\fB` + roff("--"+f.Name) + `\fR`
			if f.Shorthand != "" {
				name = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + name
			}
			if value != "" {
				name += ` \fI` + roff(value) + `\fR`
			}
			if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "0s" && d != "[]" {
				usage += " (default " + d + ")"
			}
			line(".TP\n%s\n%s", name, roff(usage))
		})
	}
	options("OPTIONS", c.NonInheritedFlags())
	options("OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		line(".SH EXAMPLE\n.EX\n%s\n.EE", roff(c.Example))
	}
	if others := related(c, section); len(others) > 0 {
		line(".SH SEE ALSO\n%s", strings.Join(others, ",\n"))
	}
	return b.String()
}

// related returns references to the pages of the parent and the subcommands.
func related(c *cobra.Command, section string) (pages []string) {
	refer := func(c *cobra.Command) { pages = append(pages, `\fB`+roff(pageName(c))+`\fR(`+section+`)`) }
	if c.HasParent() {
		refer(c.Parent())
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			refer(below)
		}
	}
	return pages
}

// roff escapes text for the formatter: no line is a request, and dashes stay dashes that can be
// copied to a command line.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
