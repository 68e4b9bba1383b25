package program

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Options bound what Inspect reads. Zero fields mean the defaults named beside them.
type Options struct {
	MaxBytes    int64 // of the file: 1 GiB
	MaxPTXBytes int   // of all its PTX together: 64 MiB
	MaxImages   int   // 1,024
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxPTXBytes <= 0 {
		o.MaxPTXBytes = 64 << 20
	}
	if o.MaxImages <= 0 {
		o.MaxImages = 1024
	}
	return o
}

// Report is what a program asks of CUDA and what comes of it.
type Report struct {
	Program     string    `json:"program"`
	Runs        Verdict   `json:"runs"`
	Reasons     []string  `json:"reasons"` // why it does not run, or not everywhere
	Notes       []string  `json:"notes"`
	Runtime     Runtime   `json:"runtime"`
	Libraries   []Library `json:"libraries"`
	Functions   []string  `json:"functions"` // of CUDA that it imports
	Images      []Image   `json:"images"`
	Kernels     int       `json:"kernels"`
	Preemptible int       `json:"preemptible"`
}

// ReadFile inspects the file called name.
func (o Options) ReadFile(ctx context.Context, name string) (*Report, error) {
	o = o.withDefaults()
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("not a file but %v", st.Mode().Type())}
	}
	b, err := io.ReadAll(io.LimitReader(f, o.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > o.MaxBytes {
		return nil, fmt.Errorf("%s: longer than %d MiB", name, o.MaxBytes>>20)
	}
	r, err := o.Inspect(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.Program = name
	return r, nil
}

// Inspect inspects a program file's bytes. An error means that they are no ELF file that can be
// read, or that ctx has ended.
func (o Options) Inspect(ctx context.Context, b []byte) (*Report, error) {
	o = o.withDefaults()
	f, err := readELF(b)
	if err != nil {
		return nil, err
	}
	r := &Report{Reasons: []string{}, Notes: []string{}, Libraries: libraries(f)} // none is [] in JSON
	d := &finder{ctx: ctx, opts: o, f: f}
	if err := d.find(); err != nil {
		return nil, err
	}
	r.Images = append([]Image{}, d.images...)
	imported, defines := cudaSymbols(f)
	r.Functions = append([]string{}, imported...)
	r.Runtime = runtimeOf(f, r.Libraries, defines, len(d.objs) > 0)
	for _, img := range r.Images {
		r.Kernels += len(img.Kernels)
		for _, k := range img.Kernels {
			if k.Preemptible {
				r.Preemptible++
			}
		}
	}
	r.judge(f)
	return r, nil
}
