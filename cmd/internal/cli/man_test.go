package cli

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// TestMan checks that each command shown in help has a page with the same content.
func TestMan(t *testing.T) {
	root := &cobra.Command{Use: "prog", Short: "Do things"}
	root.PersistentFlags().String("socket", "/run/x.sock", "the daemon's `path`")
	sub := &cobra.Command{
		Use: "make NAME", Short: "Make it", Long: "Make it now.\n\n.hidden files, and C:\\ too.\n\n  indented --text",
		Example: "  prog make a-b", Run: func(*cobra.Command, []string) {},
	}
	sub.Flags().DurationP("wait", "w", 15*time.Second, "how `long`")
	sub.Flags().Bool("dry-run", false, "only look")
	sub.Flags().Bool("secret", false, "")
	if err := sub.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(sub, NewMan(root, "1"))
	dir := filepath.Join(t.TempDir(), "new")
	root.SetArgs([]string{"man", dir})
	root.SetOut(io.Discard)
	if code := Run(root); code != OK {
		t.Fatalf("exit code %d", code)
	}
	page, err := os.ReadFile(filepath.Join(dir, "prog-make.1"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `.TH "PROG-MAKE" "1" "" "prog" "prog"
.nh
.SH NAME
prog\-make \- Make it
.SH SYNOPSIS
\fBprog make NAME [flags]\fR
.SH DESCRIPTION
Make it now.
.PP
\&.hidden files, and C:\e too.
.PP
.EX
  indented \-\-text
.EE
.SH OPTIONS
.TP
\fB\-\-dry\-run\fR
only look
.TP
\fB\-h\fR, \fB\-\-help\fR
help for make
.TP
\fB\-w\fR, \fB\-\-wait\fR \fIlong\fR
how long (default 15s)
.SH OPTIONS OF ALL COMMANDS
.TP
\fB\-\-socket\fR \fIpath\fR
the daemon's path (default /run/x.sock)
.SH EXAMPLE
.EX
  prog make a\-b
.EE
.SH SEE ALSO
\fBprog\fR(1)
`
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	for _, none := range []string{"prog-man.1", "prog-help.1"} {
		if _, err := os.Stat(filepath.Join(dir, none)); err == nil {
			t.Errorf("%s is written", none)
		}
	}
}
