package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/output"
	"vgpud/cmd/libcuda/api"
	"vgpud/guestagent/program"
)

// pciAddress matches the names of devices; other arguments of check are files.
var pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)

// programsIn reports whether check's arguments are programs rather than devices.
func programsIn(args []string) (bool, error) {
	devices := 0
	for _, a := range args {
		if pciAddress.MatchString(a) {
			devices++
		}
	}
	if devices > 0 && devices < len(args) {
		return false, cli.Usagef("devices and programs are checked apart: %s", strings.Join(args, " "))
	}
	return len(args) > 0 && devices == 0, nil
}

// checkPrograms prints what comes of program files. It is an error if one of them won't run.
func checkPrograms(ctx context.Context, w io.Writer, k *checkOptions, files []string) error {
	described, err := api.Load()
	if err != nil {
		return err
	}
	reports := []*program.Report{}
	fail := 0
	for _, name := range files {
		r, err := program.Options{}.ReadFile(ctx, name)
		if err != nil {
			return err
		}
		noteMissing(r, described)
		if r.Runs == program.Fails {
			fail++
		}
		reports = append(reports, r)
	}
	if k.Kind == "json" {
		if err := output.JSON(w, reports); err != nil {
			return err
		}
	} else if err := k.printPrograms(w, reports); err != nil {
		return err
	}
	if fail > 0 {
		return fmt.Errorf("%d of %d programs will not run", fail, len(reports))
	}
	return nil
}

// noteMissing notes the functions of the driver API that a program is linked with and that the
// guest's libcuda answers with an error.
func noteMissing(r *program.Report, described *api.API) {
	names, functions := described.Symbols()
	for _, name := range r.Functions {
		i := slices.Index(names, name)
		if i < 0 {
			continue
		}
		switch f := functions[i]; f.State {
		case api.Refused:
			r.Notes = append(r.Notes, fmt.Sprintf("%s answers with an error: %s", name, f.Reason))
		case api.Unbuilt:
			r.Notes = append(r.Notes, name+" answers with CUDA_ERROR_NOT_SUPPORTED")
		}
	}
}

func (k *checkOptions) printPrograms(w io.Writer, reports []*program.Report) error {
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, []string{r.Program, string(r.Runs), string(r.Runtime), fmt.Sprint(r.Kernels), fmt.Sprint(r.Preemptible), output.OrDash(libraryNames(r))})
	}
	if err := k.Table(w, []string{"PROGRAM", "RUNS", "CUDA", "KERNELS", "PREEMPTIBLE", "LIBRARIES"}, rows); err != nil {
		return err
	}
	for _, r := range reports {
		if err := k.printProgram(w, r); err != nil {
			return err
		}
	}
	return nil
}

// printProgram prints what there is to say of one program, and its kernels.
func (k *checkOptions) printProgram(w io.Writer, r *program.Report) error {
	var b strings.Builder
	line := func(text string) { // names in it are the file's
		b.WriteString(output.Printable(r.Program+": "+text) + "\n")
	}
	for _, reason := range r.Reasons {
		line(reason)
	}
	for _, note := range r.Notes {
		line("note: " + note)
	}
	var rows [][]string
	for _, img := range r.Images {
		if img.Error != "" {
			line(img.Where + ": " + img.Error)
		}
		for _, kernel := range img.Kernels {
			forms, reason := output.OrDash(strings.Join(kernel.Forms, ",")), output.OrDash(kernel.Reason.String())
			rows = append(rows, []string{kernel.Name, forms, reason, output.OrDash(string(img.Compiler)), img.Where})
		}
	}
	if b.Len() > 0 {
		if _, err := io.WriteString(w, "\n"+b.String()); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return k.Table(w, []string{"KERNEL", "FORMS", "REASON", "COMPILER", "IN"}, rows)
}

// libraryNames lists the libraries that a program is linked with, and those that it may load in
// brackets.
func libraryNames(r *program.Report) string {
	var names []string
	for _, l := range r.Libraries {
		if l.Linked {
			names = append(names, l.Name)
		} else {
			names = append(names, "["+l.Name+"]")
		}
	}
	return strings.Join(names, " ")
}
