package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/guestagent/cuda"
	"vgpud/mediator/api"
)

// pythonPrograms has Python packages that use CUDA, as their makers ship them, use a guest's virtual
// GPU: operations of PyTorch and CuPy (apps/operations.py). An operation that is right by the
// machine's own driver must be right in a guest.
func pythonPrograms(ctx context.Context, b *bench) error {
	if b.kind == "soft" {
		b.say("Python packages are not tried: a GPU in software has no driver of its own to compare with")
		return nil
	}
	v, err := b.client.CreateVM(ctx, api.VMSpec{Name: "python", MemoryLimitBytes: 4 * programsMemory})
	if err != nil {
		return err
	}
	b.guests = append(b.guests, v.Name)
	p := &pythonTenant{bench: b, dir: b.program("cuda"), socket: v.Socket}
	return p.operations(ctx)
}

// pythonTenant runs Python programs on a guest's virtual GPU, and on the machine's own driver.
type pythonTenant struct {
	*bench
	dir    string // with the libraries in lib, and operations.py
	socket string
}

// replaced runs its arguments where vgpud's CUDA runtime, which $RUNTIME names, stands in the place
// of each that Python packages brought along, as a tenant would put it there: packages open theirs
// by a path of its own. No process but these sees that.
const replaced = `for f in $(find "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" /usr/local/cuda/ -name "$(basename "$RUNTIME")*" -type f 2>/dev/null); do
	mount --bind "$RUNTIME" "$f" || exit
done
exec "$@"`

// command makes a command of Python's, on the virtual GPU or on the machine's own driver.
func (p *pythonTenant) command(ctx context.Context, guest bool, args ...string) *exec.Cmd {
	args = append([]string{"python3"}, args...)
	if !guest {
		return exec.CommandContext(ctx, args[0], args[1:]...)
	}
	lib := filepath.Join(p.dir, "lib")
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", replaced, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), cuda.SocketVariable+"="+p.socket, "LD_LIBRARY_PATH="+lib, "RUNTIME="+filepath.Join(lib, "libcudart.so.13"))
	return cmd
}

// operationsLimit bounds the time of one package's operations.
const operationsLimit = 100 * time.Second

// operations runs the operations of packages.
func (p *pythonTenant) operations(ctx context.Context) error {
	table := detail("on the machine's own driver", "in a guest")
	var failed []string
	var tries int
	for _, of := range []string{"torch", "cupy"} {
		var said [2]map[string]string
		for i, guest := range []bool{false, true} {
			limited, cancel := context.WithTimeout(ctx, operationsLimit)
			cmd := p.command(limited, guest, filepath.Join(p.dir, "operations.py"), of)
			out, err := cmd.Output()
			cancel()
			if err := ctx.Err(); err != nil {
				return err
			}
			if err != nil {
				var e *exec.ExitError
				if errors.As(err, &e) {
					err = fmt.Errorf("%w: %s", err, lastLine(e.Stderr))
				}
				p.say("%s, in a guest %v: %v", of, guest, err)
			}
			said[i] = make(map[string]string)
			for line := range strings.Lines(string(out)) {
				if name, what, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
					said[i][name] = what
				}
			}
		}
		const right = "right"
		for _, name := range slices.Sorted(maps.Keys(said[0])) {
			table.Add(of+": "+name, asNumber(said[0][name] == right), asNumber(said[1][name] == right))
			if said[0][name] != right {
				continue
			}
			tries++
			if said[1][name] != right {
				failed = append(failed, of+": "+name)
				p.say("%s: %s: %s", of, name, said[1][name])
			}
		}
	}
	if tries == 0 {
		return nil // what is missing has been said
	}
	how := "operations of PyTorch and CuPy (e2e/nvidia/apps/operations.py) that are right on the machine's own driver and not in a guest, through vgpud's libraries in the places of NVIDIA's. 1: right"
	if len(failed) > 0 {
		how += "; not right: " + strings.Join(failed, ", ")
	}
	r := p.row("python_operations_failed", []float64{float64(len(failed))}, how)
	r.Baseline["right_natively"] = float64(tries)
	r.Detail = table
	p.add(r)
	return nil
}

// lastLine returns the last line of what a program said.
func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
