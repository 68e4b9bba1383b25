package fairshare

import (
	"flag"
	"log"
	"os"
	"testing"
)

// TestMain draws the same cases each time, unless told otherwise: shares after a
// second or two are statistics, and one case in some thousands lies outside any
// bound that is worth holding. `go test ./fairshare -rapid.seed=N
// -rapid.checks=10000` looks further.
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
