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

// Intents records the contexts that the daemon has disabled or is about to disable. Each has a
// file, named after the guest and the context's slot, in a directory that outlives the daemon but
// not a reboot.
type Intents struct{ dir string }

// NewIntents returns the records in dir, which it creates if need be.
func NewIntents(dir string) (*Intents, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of disabled contexts: %w", err)
	}
	return &Intents{dir: dir}, nil
}

func (n *Intents) path(guest string, slot int) string {
	return filepath.Join(n.dir, guest+"-"+strconv.Itoa(slot))
}

// Add records that a context is about to be disabled.
func (n *Intents) Add(guest string, slot int) error {
	// Opening another kind of file, such as a pipe, must not block.
	f, err := os.OpenFile(n.path(guest, slot), os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("record that a context is to be disabled: %w", err)
	}
	return nil
}

// Remove removes a context's record, if there is one.
func (n *Intents) Remove(guest string, slot int) error {
	if err := os.Remove(n.path(guest, slot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of a disabled context: %w", err)
	}
	return nil
}

// List returns the recorded slots of each guest. It ignores other files in the directory.
func (n *Intents) List() (map[string][]int, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return nil, fmt.Errorf("list contexts that a daemon left disabled: %w", err)
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
