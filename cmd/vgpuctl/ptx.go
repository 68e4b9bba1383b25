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
	"vgpud/guestagent/preempt"
	"vgpud/ptx"
)

func newPTX() *cobra.Command {
	c := &cobra.Command{
		Use:   "ptx",
		Short: "See what the guest agent makes of kernels",
		Long: `ptx shows, without any GPU, what a guest's agent does with the kernels of PTX
files: whether they can leave the GPU when asked, and what they become.`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPTXCheck(), newPTXTransform())
	return c
}

func newPTXCheck() *cobra.Command {
	var f format
	var count bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say which kernels can leave the GPU when asked",
		Long: `check prints a row for each kernel of the PTX files ("-" is standard input):
whether it is preemptible, in which forms, and why not in others; its barriers, and
how many of them are passed by whole blocks or must be rewritten; and what its forms
add in registers, before the assembler allots them, and bytes of shared memory.
Below the table it says how many kernels have forms, and of those whose blocks wait
for no others how many have a form with a loop; --count prints nothing but that.

A file that can't be read or does not parse is said, the others go on, and the exit
code is 1. docs/preemption.md explains the reasons.`,
		Example:           "  vgpuctl ptx check *.ptx\n  vgpuctl ptx check -o json kernel.ptx",
		Args:              atLeast("FILE..."),
		ValidArgsFunction: completePTX,
		RunE: func(c *cobra.Command, files []string) error {
			if err := f.check(); err != nil {
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
	f.flags(c)
	c.Flags().BoolVar(&count, "count", false, "print only how many kernels have forms")
	return c
}

// printChecked writes what was found of kernels, and for people how many have forms.
func printChecked(w io.Writer, f *format, rows []ptxRow, count bool) error {
	if count {
		return countPTX(rows).print(w, f)
	}
	if err := print(w, f, ptxColumns, ptxRow.name, rows); err != nil {
		return err
	}
	if f.noHeaders || f.kind != "table" && f.kind != "wide" {
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
		Short: "Make kernels that leave the GPU when asked",
		Long: `transform adds to a PTX file ("-" is standard input) the forms of its kernels that
leave the GPU when asked, which is what a guest's agent does as it loads a module.

-o OUT names the file to write; without it, or as "-", the text goes to standard
output. With a file, the table of check is printed as well; -o json (or wide, yaml,
name, table) beside -o OUT chooses how. A file that has one of these names is
written as ./json.`,
		Example:           "  vgpuctl ptx transform kernel.ptx -o out.ptx\n  vgpuctl ptx transform kernel.ptx -o out.ptx -o json",
		Args:              exactly("FILE"),
		ValidArgsFunction: completePTX,
		RunE: func(c *cobra.Command, args []string) error {
			f := format{kind: "table", noHeaders: o.noHeaders}
			out, reported := "", false
			for _, v := range o.outputs {
				switch {
				case slices.Contains(formats, v):
					f.kind, reported = v, true
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
			return transformTo(c, &f, args[0], out, reported, preempt.Options{Forms: forms, Look: look})
		},
	}
	flags := c.Flags()
	flags.StringArrayVarP(&o.outputs, "output", "o", nil, "file to write, or how to print what was done: "+strings.Join(formats, ", "))
	flags.StringSliceVar(&o.forms, "forms", nil, "forms to make: single, coarse, persistent (default all)")
	flags.StringVar(&o.word, "word", preempt.DeviceWord.String(), "word that tells blocks to leave: device, and to measure against host, proxy")
	flags.StringVar(&o.readers, "readers", "one", "who of a block reads it: one, and to measure against all")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "print no heads over the columns")
	// The flag was just defined.
	for flag, values := range map[string][]string{"word": {"device", "host", "proxy"}, "readers": {"one", "all"}} {
		if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
	if err := c.RegisterFlagCompletionFunc("forms", cobra.FixedCompletions([]string{"single", "coarse", "persistent"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
	return c
}

// transformTo transforms file and writes the text to out, and a report to standard output unless the text goes there.
func transformTo(c *cobra.Command, f *format, file, out string, reported bool, o preempt.Options) error {
	text, rows, err := transformPTX(c, file, o)
	switch {
	case err != nil:
		if rows := failedRow(c, f, file, err); len(rows) > 0 {
			if err := print(c.OutOrStdout(), f, ptxColumns, ptxRow.name, rows); err != nil {
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
	return print(c.OutOrStdout(), f, ptxColumns, ptxRow.name, rows)
}

// failedRow says what is wrong with a file, in a row of its own where other programs read it, on standard error for
// people.
func failedRow(c *cobra.Command, f *format, file string, err error) []ptxRow {
	if f.kind == "json" || f.kind == "yaml" {
		return []ptxRow{{File: file, Error: err.Error()}}
	}
	if file != "-" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%s: %w", file, err)
	}
	fmt.Fprintln(c.ErrOrStderr(), err)
	return nil
}

// transformPTX reads a file and transforms what it holds.
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

// maxPTXBytes bounds what is read of a file.
const maxPTXBytes = 64 << 20

// readPTX reads a file, or standard input where it is called "-".
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

// parseForms reads the names of forms.
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

// parseLook reads how blocks learn that they are to leave.
func parseLook(word, readers string) (preempt.Look, error) {
	w, err := preempt.ParseWord(word)
	if err != nil {
		return preempt.Look{}, cli.UsageError{Err: err}
	}
	if readers != "one" && readers != "all" {
		return preempt.Look{}, cli.Usagef("readers %q: want one or all", readers)
	}
	return preempt.Look{Word: w, AllThreads: readers == "all"}, nil
}

// completePTX offers PTX files to the shell.
func completePTX(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"ptx"}, cobra.ShellCompDirectiveFilterFileExt
}

// ptxRow is what is said of a kernel, or of a file that can't be read, which only JSON has a row for.
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

// kinds names the kinds of forms that the kernel has: the early exit, with one task a block or several, and the
// persistent one.
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

// MarshalJSON writes the row as other programs read it. The reason is why the kernel is not preemptible; where it is,
// but not in all forms, why not in those is limited_by.
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

// ptxColumns are the columns of check's table.
var ptxColumns = []column[ptxRow]{
	{head: "FILE", cell: func(r ptxRow) string { return r.File }},
	{head: "KERNEL", cell: func(r ptxRow) string { return r.Kernel }},
	{head: "PREEMPTIBLE", cell: func(r ptxRow) string { return yesNo(r.Preemptible) }},
	{head: "FORMS", cell: func(r ptxRow) string {
		var names []string
		for _, f := range r.Forms {
			names = append(names, f.String())
		}
		return orNone(strings.Join(names, ","))
	}},
	{head: "REASON", cell: func(r ptxRow) string { return orNone(r.Reason.String()) }},
	{head: "WAITS", cell: func(r ptxRow) string { return yesNo(r.WaitsForBlocks) }},
	{head: "BARRIERS", cell: func(r ptxRow) string { return count(r.Barriers.Total) }},
	{head: "UNIFORM", cell: func(r ptxRow) string { return count(r.Barriers.Uniform) }},
	{head: "REWRITTEN", cell: func(r ptxRow) string { return count(r.Barriers.Rewritten) }},
	{head: "REGISTERS", cell: func(r ptxRow) string { return count(r.VirtualRegistersAdded) }},
	{head: "SHARED", cell: func(r ptxRow) string { return count(r.SharedBytesAdded) }},
	{head: "ALREADY", wide: true, cell: func(r ptxRow) string { return yesNo(r.TakesTasks) }},
	{head: "DETAIL", wide: true, cell: func(r ptxRow) string { return orNone(r.Detail) }},
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
