package main

import (
	"fmt"
	"regexp"
	"strings"
)

// cut returns the text of a section, without its heading and up to the next one of its level.
func cut(text, heading string) (string, error) {
	_, rest, ok := strings.Cut("\n"+text, "\n## "+heading+"\n")
	if !ok {
		return "", fmt.Errorf("there is no section %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest, nil
}

// fromYAML returns Markdown for a YAML file whose comments describe its keys: the comment lines
// before a key, which may itself be commented out, are its description.
func fromYAML(text string) string {
	var b, comment strings.Builder
	key := regexp.MustCompile(`^#?[a-z_]+:`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case key.MatchString(line):
			fmt.Fprintf(&b, "- **`%s`** %s\n", strings.TrimPrefix(line, "#"), strings.TrimSpace(comment.String()))
			comment.Reset()
		case strings.HasPrefix(line, "#"):
			comment.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ") + " ")
		default:
			if comment.Len() > 0 {
				fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(comment.String()))
				comment.Reset()
			}
		}
	}
	return b.String()
}

var (
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	code = regexp.MustCompile("`([^`]*)`")
	bold = regexp.MustCompile(`\*\*([^*]*)\*\*`)
	rule = regexp.MustCompile(`^\|[-:| ]+\|$`)
)

// page returns a manual page with the text of a Markdown page. It has no date, so that the same text
// always gives the same page.
func page(name, title, text string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH "%s" "5" "" "vgpud" "File formats"`, strings.ToUpper(name))
	line(".nh\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION", roff(name), roff(title))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		switch {
		case strings.HasPrefix(l, "# "): // the name says it
		case strings.HasPrefix(l, "### "):
			line(".SS %s", roff(l[4:]))
		case strings.HasPrefix(l, "## "):
			line(".SH %s", roff(strings.ToUpper(l[3:])))
		case strings.HasPrefix(l, "```"):
			line(".PP\n.EX")
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				line("%s", roff(lines[i]))
			}
			line(".EE")
		case strings.HasPrefix(l, "    ") && strings.TrimSpace(l) != "":
			line(".PP\n.EX")
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == ""); i++ {
				line("%s", roff(strings.TrimPrefix(lines[i], "    ")))
			}
			i--
			line(".EE\n.PP")
		case strings.HasPrefix(l, "|"):
			i = table(line, lines, i) - 1
		case strings.HasPrefix(l, "- "):
			line(".IP \\(bu 3\n%s", inline(l[2:]))
		case regexp.MustCompile(`^\d+\. `).MatchString(l):
			number, rest, _ := strings.Cut(l, " ")
			line(".IP %s 4\n%s", number, inline(rest))
		case l == "":
			line(".PP")
		default:
			line("%s", inline(strings.TrimSpace(l)))
		}
	}
	return b.String()
}

// table writes a table from lines[i] on as a list and returns the index of the line after it: the
// first cell of a row is its term, and the others follow under their headings.
func table(line func(string, ...any), lines []string, i int) int {
	heads := row(lines[i])
	for i++; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
		if rule.MatchString(lines[i]) {
			continue
		}
		c := row(lines[i])
		line(".TP\n%s", inline(c[0]))
		for j := 1; j < len(c) && j < len(heads); j++ {
			switch {
			case j == len(c)-1:
				line("%s", inline(c[j]))
			case c[j] != "":
				line("%s: %s.\n.br", roff(heads[j]), inline(c[j]))
			}
		}
	}
	line(".PP")
	return i
}

// row returns the cells of a table's line.
func row(l string) []string {
	l = strings.Trim(strings.TrimSpace(l), "|")
	var out []string
	for c := range strings.SplitSeq(strings.ReplaceAll(l, `\|`, "\x00"), "|") {
		out = append(out, strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|")))
	}
	return out
}

// inline returns a line with its emphasis in the formatter's terms.
func inline(l string) string {
	l = link.ReplaceAllString(l, "$1")
	l = roff(l)
	l = bold.ReplaceAllString(l, `\fB$1\fR`)
	return code.ReplaceAllString(l, `\fB$1\fR`)
}

// roff escapes text for the formatter.
func roff(l string) string {
	l = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(l)
	if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
		l = `\&` + l
	}
	return l
}
