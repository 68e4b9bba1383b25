package scripts_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// link is a link of a page to a page or a picture beside it.
var link = regexp.MustCompile(`\]\(([^):#]+\.(?:md|png|svg))(?:#[^)]*)?\)`)

// TestInstalledDocs: pages that are installed, on the host or in a guest, link to pages that are
// installed with them.
func TestInstalledDocs(t *testing.T) {
	script, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	// The script's lines before it installs the first program, and each call of docs.
	body := string(script)
	functions := regexp.MustCompile(`(?ms)^(take|put|docs)\(\) \{.*?^\}\n`).FindAllString(body, -1)
	calls := regexp.MustCompile(`(?m)^\tdocs (vgpud|vgpu-agent) (.*\\\n)?.*$`).FindAllString(body, -1)
	if len(functions) != 3 || len(calls) != 2 {
		t.Fatalf("install.sh has %d of three functions, and calls docs %d times", len(functions), len(calls))
	}
	share := t.TempDir()
	cmd := exec.Command("bash", "-eu", "-c", strings.Join(functions, "")+strings.Join(calls, "\n"))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "remove=", "share="+share)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages := 0
	err = filepath.WalkDir(share, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		pages++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not installed", strings.TrimPrefix(path, share), m[1])
			}
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Errorf("%d pages are installed, %v", pages, err)
	}
}

// TestTables: the tables of what operators read are tables, not paragraphs in columns.
func TestTables(t *testing.T) {
	const most = 200
	b, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "|") {
			continue
		}
		for cell := range strings.SplitSeq(line, "|") {
			if n := utf8.RuneCountInString(strings.TrimSpace(cell)); n > most {
				t.Errorf("docs/operations.md:%d: a cell has %d characters, want at most %d: %.60s…", i+1, n, most, cell)
			}
		}
	}
}
