package usage

import (
	"bufio"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"vgpud/clock"
)

// recordVariable names the environment variable that makes this binary a recorder at that path.
const recordVariable = "VGPUD_TEST_RECORD"

func TestMain(m *testing.M) {
	if path := os.Getenv(recordVariable); path != "" {
		recordForEver(path)
	}
	os.Exit(m.Run())
}

// killGuests is how many guests recordForEver has.
const killGuests = 20

// recordForEver records round after round, each as soon as the last one is done. The guests' sums
// are in a file beside the database, as they would be on control pages: each round adds a second and
// a kernel to each guest, before it records. A line on the standard output says which round is
// recorded.
func recordForEver(path string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	rounds := readRounds(path)
	samples := func() []Sample {
		all := make([]Sample, killGuests)
		for i := range all {
			all[i] = Sample{
				Life: strconv.Itoa(i), Began: time.Hour, Subject: Subject{VM: fmt.Sprint("vm", i), GPU: "gpu0"},
				Used: time.Duration(rounds) * time.Second, Kernels: uint64(rounds),
			}
		}
		return all
	}
	r := Open(Options{Path: path, Clock: clock.Real{}, Boot: "boot", SinceBoot: func() time.Duration { return 0 }, Log: slog.New(slog.DiscardHandler), Samples: samples})
	for {
		rounds++
		fail(os.WriteFile(path+".rounds.new", []byte(strconv.Itoa(rounds)), 0o600))
		fail(os.Rename(path+".rounds.new", path+".rounds"))
		r.round()
		for _, p := range r.Problems() {
			fail(fmt.Errorf("round %d: %s", rounds, p))
		}
		_, err := fmt.Println(rounds)
		fail(err)
	}
}

func readRounds(path string) int {
	b, err := os.ReadFile(path + ".rounds")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return n
}

// TestKilled kills a process that records, again and again at random moments. The next one never finds
// less than the last one had said to be recorded, nor more than the guests had used; and in the end
// each guest's sum is what the guest used.
func TestKilled(t *testing.T) {
	const kills = 25
	path := filepath.Join(t.TempDir(), "usage.sqlite")
	random := rand.New(rand.NewPCG(1, 2))
	check := func() (recorded Sums) {
		r := Open(Options{Path: path, Clock: new(clock.Sim), Boot: "boot", Log: slog.New(slog.DiscardHandler), Samples: func() []Sample { return nil }})
		defer func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}()
		if p := r.Problems(); len(p) > 0 {
			t.Fatalf("after a kill: %v", p)
		}
		var ok string
		if err := r.store.write.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
			t.Fatalf("after a kill the database is %q, %v", ok, err)
		}
		now := time.Now()
		rep, err := r.Report(t.Context(), Query{From: now.AddDate(0, 0, -2), To: now.AddDate(0, 0, 2), By: ByVM})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rep.Rows {
			if row.GPUMicros != row.Kernels*1e6 || row.Kernels != rep.Rows[0].Kernels {
				t.Fatalf("a part of a round is recorded: %+v", row)
			}
		}
		return rep.Total
	}
	for kill := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), recordVariable+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Some are killed while they start.
		said, lines := 0, bufio.NewScanner(out)
		if random.IntN(4) > 0 {
			for range 1 + random.IntN(20) {
				if !lines.Scan() {
					break
				}
				said, _ = strconv.Atoi(lines.Text())
			}
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond) // waits for nothing: it is the moment of the kill
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			said, _ = strconv.Atoi(lines.Text())
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == 1 {
			t.Fatalf("kill %d: it ended by itself: %v", kill, err)
		}
		used := readRounds(path)
		got := check()
		if n := got.Kernels; n < int64(said*killGuests) || n > int64(used*killGuests) {
			t.Fatalf("kill %d: %d kernels, want %d to %d", kill, n, said*killGuests, used*killGuests)
		}
		if lost := int64(used*killGuests) - got.Kernels; lost > killGuests {
			t.Fatalf("kill %d: lost %d kernels, more than one round's %d", kill, lost, killGuests)
		}
	}
	if readRounds(path) < kills {
		t.Errorf("%d rounds", readRounds(path))
	}
}
