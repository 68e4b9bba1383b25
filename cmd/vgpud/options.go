package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"vgpud/cmd/internal/cli"
	"vgpud/cmd/internal/journal"
	"vgpud/cmd/internal/logqueue"

	"github.com/spf13/cobra"
)

// options holds the flags of every command.
type options struct {
	level  string
	format string
}

func (o *options) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&o.level, "log-level", "info", "least level to log: debug, info, warn, error")
	c.PersistentFlags().StringVar(&o.format, "log-format", "text", "format of the log on standard error: text, json")
}

// log returns the logger that the flags describe.
func (o *options) log() (*slog.Logger, error) { return o.logTo(os.Stderr) }

// serviceLog returns the logger of a service, which goes on while nobody reads it. end must be called.
func (o *options) serviceLog() (log *slog.Logger, end func(), err error) {
	log, err = o.log()
	if err != nil {
		return nil, nil, err
	}
	h := logqueue.New(log.Handler())
	return slog.New(h), func() { h.Stop(lastWords) }, nil
}

// lastWords is how long a service that ends waits until its log is written.
const lastWords = time.Second

// logTo returns the logger with another destination, in the journal's form if that is the
// destination.
func (o *options) logTo(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return nil, cli.Usagef("log level %q: want debug, info, warn or error", o.level)
	}
	h := slog.HandlerOptions{Level: level}
	var format func(io.Writer, *slog.HandlerOptions) slog.Handler
	switch o.format {
	case "text":
		format = func(w io.Writer, h *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, h) }
	case "json":
		format = func(w io.Writer, h *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, h) }
	default:
		return nil, cli.Usagef("log format %q: want text or json", o.format)
	}
	if f, ok := w.(*os.File); ok && journal.Connected(f) {
		return slog.New(journal.New(w, h, format)), nil
	}
	return slog.New(format(w, &h)), nil
}

// selfCommand returns a command that runs this program with the same log settings.
func (o *options) selfCommand(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, append([]string{"--log-level", o.level, "--log-format", o.format}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd, nil
}
