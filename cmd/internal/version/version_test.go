package version

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "56e98e25"}}
	for want, info := range map[string]debug.BuildInfo{
		"1.2.3":    {Main: debug.Module{Version: "v1.2.3"}, Settings: revision},
		"56e98e25": {Main: debug.Module{Version: "(devel)"}, Settings: revision},
		"unknown":  {Main: debug.Module{Version: "(devel)"}},
	} {
		if got := of(&info); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
}

// TestVersionScript runs the script that names a build after the newest tag, in a repository of the
// test.
func TestVersionScript(t *testing.T) {
	script, err := filepath.Abs("../../../scripts/version.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func() string {
		run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "change")
		return run("git", "rev-parse", "--short=8", "HEAD")
	}
	want := func(want string) {
		t.Helper()
		if got := run("bash", script); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
	want("0.0.0+unknown") // no repository
	run("git", "init", "-q")
	want("0.0.0+unknown") // no commit
	h := commit()
	want("0.0.0+1.g" + h)
	run("git", "tag", "v1.4.0")
	want("1.4.0")
	run("git", "tag", "nightly") // not a release
	h = commit()
	want("1.4.0+1.g" + h)
	run("cp", script, "new")
	run("git", "add", "new")
	want("1.4.0+1.g" + h + ".dirty")
}
