package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"vgpud/cmd/internal/cli"

	"github.com/spf13/cobra"
)

// options are the flags of every command.
type options struct {
	level  string
	format string
}

func (o *options) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&o.level, "log-level", "info", "least level to log: debug, info, warn, error")
	c.PersistentFlags().StringVar(&o.format, "log-format", "text", "format of the log on standard error: text, json")
}

// log makes the logger that the flags ask for.
func (o *options) log() (*slog.Logger, error) { return o.logTo(os.Stderr) }

// logTo makes one that writes to w.
func (o *options) logTo(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return nil, cli.Usagef("log level %q: want debug, info, warn or error", o.level)
	}
	h := &slog.HandlerOptions{Level: level}
	switch o.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, cli.Usagef("log format %q: want text or json", o.format)
}

// again makes a process of this same program, with the same log.
func (o *options) again(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, append([]string{"--log-level", o.level, "--log-format", o.format}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd, nil
}
