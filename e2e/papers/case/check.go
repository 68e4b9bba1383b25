package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// files are those that rows are in: simulated, timed on some machine, and measured with processes.
var files = []string{"case.json", "case-time.json", "case-live.json"}

// profiles are the pages that explain a goal that was missed. A why names one of them.
var profiles = []string{"docs/results/case.md", "docs/results/case-live.md"}

// check prints the rows of written results, one a line, and how many goals are met, missed and
// unmeasured. It returns an error if a row is absent, or missed without a why.
func check(w io.Writer, dir string) error {
	rows := make(map[string]row)
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		var page struct {
			Rows []row `json:"rows"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range page.Rows {
			rows[r.ID] = r
		}
	}
	var met, missed, unmeasured int
	var wrong []string
	for _, g := range goals {
		r, ok := rows[g.id]
		switch {
		case !ok && g.live:
			r = row{ID: g.id, Unit: g.unit, Goal: g.text(), Paper: g.paper, Why: "not measured yet"}
		case !ok:
			wrong = append(wrong, g.id+" is absent")
			continue
		}
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false)
		if err := line.Encode(r); err != nil {
			return err
		}
		switch {
		case r.Met == nil:
			unmeasured++
			if r.Why == "" {
				wrong = append(wrong, g.id+" is not measured, without a why")
			}
		case *r.Met:
			met++
		default:
			missed++
			if !explained(r.Why, dir) {
				wrong = append(wrong, g.id+" is missed, without a why that names a profile")
			}
		}
	}
	fmt.Fprintf(w, `{"met":%d,"missed":%d,"unmeasured":%d}`+"\n", met, missed, unmeasured)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// explained reports whether a why names a profile that is in the directory.
func explained(why, dir string) bool {
	for _, p := range profiles {
		if _, err := os.Stat(filepath.Join(dir, path.Base(p))); err == nil && strings.Contains(why, p) {
			return true
		}
	}
	return false
}

// number writes a number as short as it is.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
