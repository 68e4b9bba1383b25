package instance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/nova"
	"vgpud/mediator/statefile"
)

// Known are the files with what Placement said last of each instance, in a directory of their own.
type Known struct {
	Dir string
	// Most bounds the number of files; 0 means [DefaultMost]. The oldest go first.
	Most int
}

// DefaultMost is several times the number of instances that a host holds.
const DefaultMost = 4096

// maxKnown bounds a file, in bytes.
const maxKnown = 16 << 10

// record is a file's content. No grants means that the instance has no resources of vgpud's.
type record struct {
	UUID   string       `json:"uuid"`
	Grants []nova.Grant `json:"grants"`
	At     time.Time    `json:"at"`
}

// errUnknown means that nothing is known of an instance.
var errUnknown = errors.New("Placement has not been asked about it before")

func (k Known) path(uuid string) string { return filepath.Join(k.Dir, uuid+".json") }

// Remember saves what Placement said of an instance.
func (k Known) Remember(uuid string, grants []nova.Grant, now time.Time) error {
	if err := api.CheckUUID(uuid); err != nil {
		return err // it becomes part of a path
	}
	if had, err := k.recall(uuid); err == nil && slices.Equal(had.Grants, grants) {
		return nil
	}
	b, err := json.Marshal(record{uuid, grants, now})
	if err != nil {
		return fmt.Errorf("save what Placement granted: %w", err)
	}
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return &statefile.Error{Path: k.Dir, Err: err}
	}
	return errors.Join(statefile.Files{}.Write(k.path(uuid), b), k.prune())
}

// Recall returns what Placement said last of an instance, and when.
func (k Known) Recall(uuid string) (grants []nova.Grant, at time.Time, err error) {
	r, err := k.recall(uuid)
	if errors.Is(err, fs.ErrNotExist) {
		err = errUnknown
	}
	return r.Grants, r.At, err
}

func (k Known) recall(uuid string) (r record, err error) {
	if err := api.CheckUUID(uuid); err != nil {
		return r, err
	}
	b, err := statefile.Read(k.path(uuid), maxKnown)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil || r.UUID != uuid {
		return record{}, fmt.Errorf("%s does not say what Placement granted %s: remove it", k.path(uuid), uuid)
	}
	return r, nil
}

// prune removes the oldest files if there are too many.
func (k Known) prune() error {
	entries, err := os.ReadDir(k.Dir)
	most := cmp.Or(k.Most, DefaultMost)
	if err != nil || len(entries) <= most {
		return err
	}
	type file struct {
		name string
		at   time.Time
	}
	var files []file
	for _, e := range entries {
		if st, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".json") {
			files = append(files, file{e.Name(), st.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name)) })
	var errs []error
	for _, f := range files[:max(len(files)-most, 0)] {
		if err := os.Remove(filepath.Join(k.Dir, f.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
