package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// NewMan is the command that writes a program's manual pages into a directory, in
// that section of the manual, from the same tree as its help. It is shown in
// neither: who installs the program calls it.
func NewMan(root *cobra.Command, section string) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("want DIRECTORY, got %d words", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			// Without a date: the same program gives the same pages.
			header := doc.GenManHeader{Section: section, Source: "vgpud", Manual: "vgpud", Date: &time.Time{}}
			return doc.GenManTree(root, &header, args[0])
		},
	}
}
