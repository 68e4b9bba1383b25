package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of a domain's arguments: a device for each of 16 virtual GPUs takes 3 KiB.
const (
	maxFile     = 64 << 10 // bytes
	maxArgument = 4 << 10  // bytes
)

// parseArguments returns the arguments in a file, one a line.
func parseArguments(text []byte) ([]string, error) {
	if !bytes.HasSuffix(text, []byte("\n")) {
		return nil, errors.New("the file is incomplete: its last line has no end")
	}
	args := strings.Split(string(text[:len(text)-1]), "\n")
	for i, a := range args {
		switch {
		case a == "":
			return nil, fmt.Errorf("line %d is empty", i+1)
		case len(a) > maxArgument:
			return nil, fmt.Errorf("line %d has %d bytes: want %d at most", i+1, len(a), maxArgument)
		case !utf8.ValidString(a) || strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("line %d is not text", i+1)
		}
	}
	if uuid, err := domainUUID(args); uuid != "" || err != nil {
		return nil, errors.New("the arguments name a domain themselves")
	}
	return args, nil
}
