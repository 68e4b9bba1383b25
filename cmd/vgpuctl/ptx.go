package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/guestagent/preempt"
	"vgpud/ptx"
)

func newPTX() *cobra.Command {
	c := cli.NewGroup("ptx", "Show what the guest agent makes of kernels", newPTXCheck(), newPTXTransform())
	c.Long = `ptx shows, without any GPU, what a guest's agent makes of the kernels of PTX files:
whether they are preemptible, and the code that they become.`
	return c
}

func newPTXCheck() *cobra.Command {
	f := newFormat()
	var count bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Show which kernels are preemptible",
		Long: `check prints a row for each kernel of the PTX files ("-" is standard input): whether it
is preemptible, in which forms, and why not in others; its barriers, and how many of
them are passed by whole blocks or must be rewritten; and what its forms add in virtual
registers and bytes of shared memory. Below the table it prints how many kernels have
forms, and, of those whose blocks do not wait for others, how many have a form with a
loop; --count prints only that.

A file that can't be read or parsed is reported, the others are checked, and the exit
code is 1. The page preemption.md of vgpud's documentation explains the reasons.`,
		Example:           "  vgpuctl ptx check *.ptx\n  vgpuctl ptx check -o json kernel.ptx",
		Args:              atLeast("FILE..."),
		ValidArgsFunction: completePTX,
		RunE: func(c *cobra.Command, files []string) error {
			if err := f.Check(); err != nil {
				return err
			}
			var rows []ptxRow
			failed := 0
			for _, file := range files {
				_, found, err := transformPTX(c, file, preempt.Options{})
				if err != nil {
					failed++
					found = failedRow(c, &f, file, err)
				}
				rows = append(rows, found...)
			}
			if err := printChecked(c.OutOrStdout(), &f, rows, count); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d files can't be checked", failed, len(files))
			}
			return nil
		},
	}
	f.Flags(c)
	c.Flags().BoolVar(&count, "count", false, "print only how many kernels have forms")
	return c
}

// printChecked prints the rows, and below a table how many kernels have forms.
func printChecked(w io.Writer, f *output.Format, rows []ptxRow, count bool) error {
	if count {
		return countPTX(rows).print(w, f)
	}
	if err := ptxTable.print(w, f, rows); err != nil {
		return err
	}
	if f.NoHeaders || f.Kind != "table" && f.Kind != "wide" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%v\n", countPTX(rows))
	return err
}

func newPTXTransform() *cobra.Command {
	var o struct {
		outputs, forms []string
		word, readers  string
		noHeaders      bool
	}
	c := &cobra.Command{
		Use:   "transform FILE",
		Short: "Make kernels preemptible",
		Long: `transform adds the preemptible forms of its kernels to a PTX file ("-" is standard
input), as a guest's agent does when it loads a module.

-o OUT names the file to write; without it, or with "-", the text goes to standard
output. With a file, the table of check is printed as well, in the format of a second
-o: json, wide, yaml, name or table. A file with one of these names is written as
./json.`,
		Example:           "  vgpuctl ptx transform kernel.ptx -o out.ptx\n  vgpuctl ptx transform kernel.ptx -o out.ptx -o json",
		Args:              exactly("FILE"),
		ValidArgsFunction: completePTX,
		RunE: func(c *cobra.Command, args []string) error {
			f := output.Format{Kind: "table", NoHeaders: o.noHeaders}
			out, reported := "", false
			for _, v := range o.outputs {
				switch {
				case slices.Contains(formats, v):
					f.Kind, reported = v, true
				case out != "":
					return cli.Usagef("two files to write, %s and %s", out, v)
				default:
					out = v
				}
			}
			forms, err := parseForms(o.forms)
			if err != nil {
				return err
			}
			look, err := parseLook(o.word, o.readers)
			if err != nil {
				return err
			}
			return transformTo(c, &f, args[0], out, reported, preempt.Options{Forms: forms, Check: look})
		},
	}
	flags := c.Flags()
	flags.StringArrayVarP(&o.outputs, "output", "o", nil, "file to write, or format of the report: "+strings.Join(formats, ", "))
	flags.StringSliceVar(&o.forms, "forms", nil, "forms to make: single, coarse, persistent (default all)")
	flags.StringVar(&o.word, "word", preempt.DeviceWord.String(), "the evict word that blocks read: device; for comparison: host, proxy")
	flags.StringVar(&o.readers, "readers", "one", "threads of a block that read it: one; for comparison: all")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "print no column headings")
	cli.CompleteFlag(c, "word", "device", "host", "proxy")
	cli.CompleteFlag(c, "readers", "one", "all")
	cli.CompleteFlag(c, "forms", "single", "coarse", "persistent")
	return c
}

// transformTo transforms file and writes the text to out, and a report to standard output unless
// the text goes there.
func transformTo(c *cobra.Command, f *output.Format, file, out string, reported bool, o preempt.Options) error {
	text, rows, err := transformPTX(c, file, o)
	switch {
	case err != nil:
		if rows := failedRow(c, f, file, err); len(rows) > 0 {
			if err := ptxTable.print(c.OutOrStdout(), f, rows); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s can't be transformed", file)
	case out == "-" || out == "" && !reported:
		_, err := io.WriteString(c.OutOrStdout(), text)
		return err
	case out != "":
		if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return ptxTable.print(c.OutOrStdout(), f, rows)
}

// failedRow reports a file's error: as a row in formats for programs, otherwise on standard error.
func failedRow(c *cobra.Command, f *output.Format, file string, err error) []ptxRow {
	if f.Kind == "json" || f.Kind == "yaml" {
		return []ptxRow{{File: file, Error: err.Error()}}
	}
	if file != "-" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%s: %w", file, err)
	}
	fmt.Fprintln(c.ErrOrStderr(), err)
	return nil
}

// transformPTX reads and transforms a file.
func transformPTX(c *cobra.Command, file string, o preempt.Options) (string, []ptxRow, error) {
	src, err := readPTX(c.InOrStdin(), file)
	if err != nil {
		return "", nil, err
	}
	m, err := ptx.Options{MaxBytes: maxPTXBytes}.ParseContext(c.Context(), src)
	if err != nil {
		if e := context.Cause(c.Context()); e != nil {
			return "", nil, e
		}
		return "", nil, err
	}
	for _, w := range m.Warnings {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", file, w)
	}
	out, reports, err := preempt.Transform(m, o)
	if err != nil {
		return "", nil, err
	}
	rows := make([]ptxRow, len(reports))
	for i, r := range reports {
		rows[i] = ptxRow{File: file, Report: r}
	}
	return out.String(), rows, nil
}

// maxPTXBytes bounds the size of a file.
const maxPTXBytes = 64 << 20

// readPTX reads a file, or standard input if file is "-".
func readPTX(stdin io.Reader, file string) (string, error) {
	r := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close() // only read
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPTXBytes+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxPTXBytes {
		return "", fmt.Errorf("longer than %d MiB", maxPTXBytes>>20)
	}
	return string(b), nil
}

// parseForms parses the names of forms.
func parseForms(names []string) (preempt.Form, error) {
	var forms preempt.Form
	for _, n := range names {
		switch n {
		case "single":
			forms |= preempt.Single
		case "coarse":
			forms |= preempt.Coarse
		case "persistent":
			forms |= preempt.Persistent
		default:
			return 0, cli.Usagef("form %q: want single, coarse or persistent", n)
		}
	}
	return forms, nil
}

// parseLook parses how blocks learn that they should leave.
func parseLook(word, readers string) (preempt.Check, error) {
	w, err := preempt.ParseWord(word)
	if err != nil {
		return preempt.Check{}, cli.UsageError{Err: err}
	}
	if readers != "one" && readers != "all" {
		return preempt.Check{}, cli.Usagef("readers %q: want one or all", readers)
	}
	return preempt.Check{Word: w, AllThreads: readers == "all"}, nil
}

// completePTX completes the names of PTX files.
func completePTX(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"ptx"}, cobra.ShellCompDirectiveFilterFileExt
}

// ptxRow is the report on a kernel, or on a file that can't be read, which only JSON and YAML have
// a row for.
type ptxRow struct {
	File  string
	Error string // instead of a report
	preempt.Report
}

func (r ptxRow) name() string {
	if r.Error != "" {
		return r.File
	}
	return r.File + ":" + r.Kernel
}

// kinds returns the kinds of the kernel's forms: the early exit, with one task a block or several,
// and the persistent one.
func (r ptxRow) kinds() []string {
	kinds := []string{}
	if slices.ContainsFunc(r.Forms, preempt.Form.EarlyExit) {
		kinds = append(kinds, "early-exit")
	}
	if slices.Contains(r.Forms, preempt.Persistent) {
		kinds = append(kinds, "persistent")
	}
	return kinds
}

// MarshalJSON encodes the row for programs. reason says why the kernel is not preemptible. If it
// is, but not in all forms, limited_by says why not in the others.
func (r ptxRow) MarshalJSON() ([]byte, error) {
	type failure struct {
		File  string `json:"file"`
		Error string `json:"error"`
	}
	type barriers struct {
		Total     int `json:"total"`
		Uniform   int `json:"uniform"`
		Rewritten int `json:"rewritten"`
	}
	type row struct {
		File        string         `json:"file"`
		Kernel      string         `json:"kernel"`
		Preemptible bool           `json:"preemptible"`
		Forms       []string       `json:"forms"`
		Reason      preempt.Reason `json:"reason"`
		LimitedBy   string         `json:"limited_by,omitempty"`
		Detail      string         `json:"detail,omitempty"`
		Barriers    barriers       `json:"barriers"`
		Waits       bool           `json:"waits_for_blocks"`
		Loops       bool           `json:"loop_forms"`
		TakesTasks  bool           `json:"persistent_already,omitempty"`
		Registers   int            `json:"virtual_registers_added"`
		Shared      int            `json:"shared_bytes_added"`
	}
	if r.Error != "" {
		return json.Marshal(failure{r.File, r.Error})
	}
	out := row{
		File: r.File, Kernel: r.Kernel, Preemptible: r.Preemptible, Forms: r.kinds(), Detail: r.Detail,
		Barriers: barriers(r.Barriers), Waits: r.WaitsForBlocks, Loops: r.loops(), TakesTasks: r.TakesTasks, Registers: r.VirtualRegistersAdded, Shared: r.SharedBytesAdded,
	}
	if r.Preemptible {
		out.LimitedBy = r.Reason.String()
	} else {
		out.Reason = r.Reason
	}
	return json.Marshal(out)
}

// ptxTable prints kernels.
var ptxTable = table[ptxRow]{columns: func([]ptxRow) []column[ptxRow] { return ptxColumns }, name: ptxRow.name}

// ptxColumns are the columns of check's table.
var ptxColumns = []column[ptxRow]{
	{head: "FILE", value: func(r ptxRow) string { return r.File }},
	{head: "KERNEL", value: func(r ptxRow) string { return r.Kernel }},
	{head: "PREEMPTIBLE", value: func(r ptxRow) string { return yesNo(r.Preemptible) }},
	{head: "FORMS", value: func(r ptxRow) string {
		var names []string
		for _, f := range r.Forms {
			names = append(names, f.String())
		}
		return output.OrDash(strings.Join(names, ","))
	}},
	{head: "REASON", value: func(r ptxRow) string { return output.OrDash(r.Reason.String()) }},
	{head: "WAITS", value: func(r ptxRow) string { return yesNo(r.WaitsForBlocks) }},
	{head: "BARRIERS", value: func(r ptxRow) string { return fmt.Sprint(r.Barriers.Total) }},
	{head: "UNIFORM", value: func(r ptxRow) string { return fmt.Sprint(r.Barriers.Uniform) }},
	{head: "REWRITTEN", value: func(r ptxRow) string { return fmt.Sprint(r.Barriers.Rewritten) }},
	{head: "REGISTERS", value: func(r ptxRow) string { return fmt.Sprint(r.VirtualRegistersAdded) }},
	{head: "SHARED", value: func(r ptxRow) string { return fmt.Sprint(r.SharedBytesAdded) }},
	{head: "ALREADY", wide: true, value: func(r ptxRow) string { return yesNo(r.TakesTasks) }},
	{head: "DETAIL", wide: true, value: func(r ptxRow) string { return output.OrDash(r.Detail) }},
}
