package fairshare

import (
	"flag"
	"log"
	"os"
	"testing"
)

// TestMain makes rapid draw the same cases each time unless a flag says otherwise. Shares after a
// second or two are statistics, and one case in some thousands lies outside any useful bound. `go
// test ./fairshare -rapid.seed=N -rapid.checks=10000` checks more cases.
func TestMain(m *testing.M) {
	flag.Parse()
	seeded := false
	flag.Visit(func(f *flag.Flag) { seeded = seeded || f.Name == "rapid.seed" })
	if !seeded {
		if err := flag.Set("rapid.seed", "2017"); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}
