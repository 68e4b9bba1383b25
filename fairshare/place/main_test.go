package place

import (
	"flag"
	"log"
	"math/rand/v2"
	"os"
	"testing"
)

// TestMain makes rapid draw the same cases each time unless a flag says otherwise: shares are
// statistics. `go test ./fairshare/place -rapid.seed=N -rapid.checks=10000` checks more cases.
func TestMain(m *testing.M) {
	flag.Parse()
	seeded := false
	flag.Visit(func(f *flag.Flag) { seeded = seeded || f.Name == "rapid.seed" })
	if !seeded {
		if err := flag.Set("rapid.seed", "2022"); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
