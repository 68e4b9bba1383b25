package main

import (
	"flag"
	"os"
)

func main() {
	find := flag.Bool("fit", false, "find the factors by which single assignment alone gives the paper's table 7")
	flag.Parse()
	if *find {
		fit(os.Stdout)
	}
}
