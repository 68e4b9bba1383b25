package suspend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Intents are the contexts that the daemon has disabled or is about to: a file each,
// named after the guest and the context's slot, in a directory that outlives the
// daemon and not the host's end.
type Intents struct{ dir string }

// NewIntents keeps them in dir, which it makes where there is none.
func NewIntents(dir string) (*Intents, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of disabled contexts: %w", err)
	}
	return &Intents{dir: dir}, nil
}

func (n *Intents) path(guest string, slot int) string {
	return filepath.Join(n.dir, guest+"-"+strconv.Itoa(slot))
}

// Note writes down that a context is about to be disabled.
func (n *Intents) Note(guest string, slot int) error {
	// A pipe that lies there must not be waited for.
	f, err := os.OpenFile(n.path(guest, slot), os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("note that a context is to be disabled: %w", err)
	}
	return nil
}

// Clear takes back what was noted, if anything was.
func (n *Intents) Clear(guest string, slot int) error {
	if err := os.Remove(n.path(guest, slot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back that a context is disabled: %w", err)
	}
	return nil
}

// List is what is noted: slots by guest. What else lies in the directory is nobody's,
// and left there.
func (n *Intents) List() (map[string][]int, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return nil, fmt.Errorf("look for contexts that a daemon left disabled: %w", err)
	}
	noted := make(map[string][]int)
	for _, e := range entries {
		i := strings.LastIndexByte(e.Name(), '-')
		if i <= 0 {
			continue
		}
		if slot, err := strconv.ParseUint(e.Name()[i+1:], 10, 8); err == nil {
			noted[e.Name()[:i]] = append(noted[e.Name()[:i]], int(slot))
		}
	}
	return noted, nil
}
