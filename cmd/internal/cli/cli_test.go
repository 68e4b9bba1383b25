package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/spf13/cobra"
)

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		err  error
		want int
		out  string
	}{
		"well":         {nil, nil, OK, ""},
		"failed":       {nil, errors.New("no luck"), Failed, "prog: no luck\n"},
		"bad usage":    {nil, Usagef("want %d", 3), Usage, "prog: want 3\n"},
		"wrapped":      {nil, errors.Join(Usagef("want less")), Usage, "prog: want less\n"},
		"unknown flag": {[]string{"--nope"}, nil, Usage, "prog: unknown flag: --nope\n"},
		"no number":    {[]string{"--n", "x"}, nil, Usage, "prog: --n \"x\": want a whole number\n"},
		"no time":      {[]string{"-t", "soon"}, nil, Usage, "prog: --time \"soon\": want a time such as 10s or 500ms\n"},
		"no yes or no": {[]string{"--yes=x"}, nil, Usage, "prog: --yes \"x\": want true or false\n"},
		"unknown word": {[]string{"nope"}, nil, Usage, "prog: unknown argument \"nope\"; see `prog --help`\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := &cobra.Command{Use: "prog", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return c.err }}
			root.Flags().Int("n", 0, "")
			root.Flags().DurationP("time", "t", 0, "")
			root.Flags().Bool("yes", false, "")
			root.SetArgs(append([]string{}, c.args...))
			root.SetErr(&out)
			if got := Run(root); got != c.want || out.String() != c.out {
				t.Errorf("exit code %d, %q; want %d, %q", got, out.String(), c.want, c.out)
			}
		})
	}
}
