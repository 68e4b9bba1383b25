package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// magic begins a file. The format's version and the SHA-256 of what follows the line follow it.
const magic = "vgpu-agent kernels"

// Version is the format's version. Files with another one are not read. In version 1 slots were
// those of a form.
const Version = 2

// MaxBytes bounds a file.
const MaxBytes = 16 << 20

// Encode encodes entries in their order, as many as fit MaxBytes.
func Encode(entries []Entry) ([]byte, error) {
	var body bytes.Buffer
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("encode kernel %s: %w", e.Name, err)
		}
		if body.Len()+len(line)+1 > MaxBytes-256 {
			break
		}
		body.Write(append(line, '\n'))
	}
	head := fmt.Sprintf("%s %d %x\n", magic, Version, sha256.Sum256(body.Bytes()))
	return append([]byte(head), body.Bytes()...), nil
}

// ErrVersion means that a file has another version of the format.
var ErrVersion = errors.New("another version of the format")

// Decode decodes what Encode encoded, from untrusted bytes.
func Decode(b []byte) ([]Entry, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	head, body, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || !bytes.HasPrefix(head, []byte(magic+" ")) {
		return nil, errors.New("not a file of kernels")
	}
	version, sum, _ := strings.Cut(string(head[len(magic)+1:]), " ")
	if version != fmt.Sprint(Version) {
		return nil, fmt.Errorf("%w: %.20q, this is %d", ErrVersion, version, Version)
	}
	if sum != fmt.Sprintf("%x", sha256.Sum256(body)) {
		return nil, errors.New("its checksum is wrong")
	}
	var all []Entry
	for line := range bytes.Lines(body) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(all)+1, err)
		}
		if len(all) == MaxEntries {
			break
		}
		all = append(all, e.bounded())
	}
	return all, nil
}
