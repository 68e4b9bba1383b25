// Command nvidia measures vgpud on a real GPU: the daemon, guests as processes that attach over
// vfio-user, and programs of the host beside them as baselines. It runs in parts of some minutes
// each. Each part adds its rows to one JSON file, from which the page of results is made.
//
//	run --part launch --out h100.json     one part
//	run --out h100.json                   all parts without rows in the file
//	run --part soak --soak 8m --out h100.json   guests that come, go, fault and misbehave for that long
//	run --part case --out case-gpu.json   tasks over all GPUs of a machine that has two or more
//	run --part edge,edge-idle,edge-shares,edge-host,edge-streams --out edge-gpu.json   event kernels
//	run --within 9m --out h100.json       those of them that fit into the time
//	run --why ID=REASON --out h100.json   why a goal was missed, for the page
//	run --hold --out h100.json            compare its rows with the goals anew
//	run --table --out h100.json           the page, on standard output
//
// It needs no network and no compiler: bundle.sh puts everything that it runs into a directory.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/child"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
)

// options are the options of the command line.
type options struct {
	part     string
	out      string
	quick    bool
	tiny     bool
	most     int           // runs; 0 is as many as usual
	soak     time.Duration // how long part soak has guests at work
	seed     uint64        // of what happens to them
	table    bool
	why      map[string]string // by row
	hold     bool
	within   time.Duration // 0: however long it takes
	again    bool
	keep     bool
	kind     string
	device   string
	devices  []string // all GPUs, for parts that take several
	cells    string   // how guests are confined
	programs string
	self     string // this program
	sms      int    // of the GPU
	progress io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "tenant" {
		return tenant.Serve(ctx, os.Stdin, os.Stdout, openGPU)
	}
	if len(args) == 3 && args[0] == "mischief" {
		return misbehave(ctx, os.Stdout, args[1], args[2])
	}
	o := options{progress: os.Stderr, why: make(map[string]string)}
	f := flag.NewFlagSet("run", flag.ExitOnError)
	f.StringVar(&o.part, "part", "", "parts to run, separated by commas, of "+strings.Join(partNames(), ", ")+"; empty: all but soak, case and those of event kernels and Python that are not in the file")
	f.StringVar(&o.out, "out", "h100.json", "the file of results, which is added to")
	f.BoolVar(&o.quick, "quick", false, "3 runs and shorter windows: a part takes about a minute")
	f.IntVar(&o.most, "runs", 0, "measure at most so many times; 0: as often as usual")
	f.BoolVar(&o.tiny, "tiny", false, "one run of next to nothing, to try the harness itself")
	f.BoolVar(&o.table, "table", false, "print the page of what the file has, and measure nothing")
	f.BoolVar(&o.hold, "hold", false, "hold the file's rows to their goals as these are now, and measure nothing")
	f.Func("why", "`ID=REASON`: note in the file why a row's goal was missed, and measure nothing; may be repeated", func(s string) error {
		id, reason, ok := strings.Cut(s, "=")
		if !ok || reason == "" {
			return errors.New("want ID=REASON")
		}
		o.why[id] = reason
		return nil
	})
	f.DurationVar(&o.within, "within", 0, "begin no part that may end later than so long from now; 0: all, however long they take")
	f.DurationVar(&o.soak, "soak", usualSoak, "how long part soak has guests at work; it takes 40 s more")
	f.Uint64Var(&o.seed, "seed", 1, "what happens to the guests of part soak")
	f.BoolVar(&o.again, "again", false, "also run parts that the file has rows of")
	f.BoolVar(&o.keep, "keep-logs", false, "leave the processes' logs behind")
	f.StringVar(&o.kind, "gpu", "nvidia", "kind of GPU: nvidia; soft tries the harness, and its results are of no use")
	f.StringVar(&o.device, "device", "", "which GPU, as the daemon's configuration has it; empty: the only one")
	f.StringVar(&o.cells, "confinement", "", "the daemon's confinement.mode; empty: its default")
	f.StringVar(&o.programs, "programs", "", "the directory with vgpud; empty: beside this program")
	if err := f.Parse(args); err != nil {
		return err
	}
	var err error
	if o.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if o.programs == "" {
		o.programs = filepath.Dir(o.self)
	}
	if o.table {
		file, err := report.Read(o.out)
		if err != nil {
			return err
		}
		_, err = io.WriteString(os.Stdout, file.Page(filepath.Base(o.out)))
		return err
	}
	if len(o.why) > 0 || o.hold {
		return explain(&o)
	}
	return measure(ctx, &o)
}

// explain writes reasons for missed goals into the file, after it has compared the rows with their
// goals anew if o.hold is set. It writes everything or nothing.
func explain(o *options) error {
	file, err := report.Read(o.out)
	if err != nil {
		return err
	}
	if o.hold {
		file.Hold()
	}
	for id, reason := range o.why {
		if err := file.Explain(id, reason); err != nil {
			return fmt.Errorf("%s: %w", o.out, err)
		}
	}
	return file.Write(o.out)
}

// measure runs the parts that were asked for. If one fails, the others run all the same.
func measure(ctx context.Context, o *options) error {
	about, err := ask(ctx, o)
	if err != nil {
		return err
	}
	wanted, err := choose(o.part)
	if err != nil {
		return err
	}
	file, err := report.Read(o.out)
	if err == nil {
		err = file.Merge(about) // nothing yet, but it must be of this GPU
	}
	if err != nil {
		return err
	}
	var errs []error
	start := time.Now()
	for _, p := range wanted {
		if o.part == "" && !o.again && p.done(&file) {
			say(o, "part %s: done before", p.name)
			continue
		}
		begin := time.Now()
		if o.within > 0 && begin.Add(p.takes).After(start.Add(o.within)) {
			say(o, "part %s: put off, it may take %v", p.name, p.takes)
			continue
		}
		say(o, "part %s", p.name)
		found, err := runPart(ctx, o, &p)
		if err != nil {
			errs = append(errs, fmt.Errorf("part %s: %w", p.name, err))
			say(o, "part %s: %v", p.name, err)
		}
		if len(found.Rows)+len(found.Faults) > 0 { // also what a part had before it failed
			found.GPU, found.Driver, found.Date = about.GPU, about.Driver, about.Date
			if p.done(&found) && p.name == faultsPart {
				file.Faults = nil // some that are there may not be tried any more
			}
			if err := file.Merge(found); err != nil {
				return err
			}
			if err := file.Write(o.out); err != nil {
				return err
			}
		}
		for _, r := range found.Rows {
			say(o, "  %s: %.6g %s, goal %.6g, met %v", r.ID, r.Value, r.Unit, r.Goal, r.Met)
		}
		say(o, "part %s: %.0f s, %.0f s in all", p.name, time.Since(begin).Seconds(), time.Since(start).Seconds())
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// runPart runs one part on a testbed of its own.
func runPart(ctx context.Context, o *options, p *part) (found report.File, err error) {
	limit := partLimit
	if p.name == soakPart {
		limit = 2*soakCalibrates + o.soak
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	build, err := buildOf(filepath.Join(o.programs, "vgpud"))
	if err != nil {
		return found, err
	}
	defer func() {
		for i := range found.Rows {
			found.Rows[i].Build = build
		}
	}()
	b := &bench{options: o, found: &found, command: "e2e/nvidia/run --part " + p.name, begin: time.Now(), takes: p.takes}
	if o.quick {
		b.command += " --quick"
	}
	if o.most > 0 {
		b.command += fmt.Sprintf(" --runs %d", o.most)
	}
	if p.name == soakPart {
		b.command += fmt.Sprintf(" --soak %v --seed %d", o.soak, o.seed)
	}
	h, err := newTestbed(ctx, o)
	if b.testbed = h; err == nil {
		err = p.run(ctx, b)
	}
	if h != nil {
		if err != nil && !o.keep {
			err = fmt.Errorf("%w\nthe daemon's log:%s", err, child.Tail(filepath.Join(h.dir, "serve.log")))
		}
		err = errors.Join(err, h.close(o.keep))
	}
	return found, err
}

// buildOf returns the beginning of a program's SHA-256, which identifies its build.
func buildOf(program string) (string, error) {
	f, err := os.Open(program)
	if err != nil {
		return "", fmt.Errorf("tell which build is measured: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was read only
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("tell which build is measured: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:buildDigits], nil
}

// buildDigits is how many digits identify a build.
const buildDigits = 12

// partLimit bounds the time of a part but soak.
const partLimit = 8 * time.Minute

func say(o *options, format string, args ...any) {
	fmt.Fprintf(o.progress, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}
