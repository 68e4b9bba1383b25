package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"vgpud/mediator/api"
)

// Arguments is the file with what is added to a domain's QEMU command line, one argument a line:
// RUN_DIR/domains/UUID/qemu.args. It belongs to the hook's user, root, in a directory of the
// daemon's; the program that libvirt starts as the emulator reads it, as QEMU's user.
type Arguments struct{ RunDir, UUID string }

// argumentsName is the file's name in the domain's directory.
const argumentsName = "qemu.args"

func (a Arguments) dir() string { return filepath.Join("domains", a.UUID) }

// open opens the daemon's directory. Nothing outside of it is reached, whatever links are in it.
func (a Arguments) open() (*os.Root, error) {
	if err := api.CheckUUID(a.UUID); err != nil {
		return nil, err // it becomes part of a path
	}
	root, err := os.OpenRoot(a.RunDir)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's directory: %w", err)
	}
	return root, nil
}

// Write writes the file for a QEMU of this group. The domain's directory must be there already: the
// daemon makes it with the first virtual GPU.
func (a Arguments) Write(args []string, gid int) (err error) {
	for _, arg := range args {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("argument %.100q for QEMU: want text on one line", arg)
		}
	}
	root, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, dir := range []string{"domains", a.dir()} {
		st, err := root.Lstat(dir)
		if err != nil {
			return fmt.Errorf("the domain's directory: %w", err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s: want a directory of this user's (%d) that no other user may write to; remove it", filepath.Join(a.RunDir, dir), os.Geteuid())
		}
	}
	path, next := filepath.Join(a.dir(), argumentsName), filepath.Join(a.dir(), argumentsName+".new")
	// A file that is there was left by an earlier call, or planted.
	if err := root.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the arguments for QEMU: %w", err)
	}
	f, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the arguments for QEMU: %w", err)
	}
	_, err = f.WriteString(strings.Join(args, "\n") + "\n")
	if err == nil && gid != os.Getegid() {
		err = f.Chown(-1, gid)
	}
	if err == nil {
		err = f.Chmod(0o640)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the arguments for QEMU: %w", err), root.Remove(next))
	}
	return nil
}

// Remove removes the file, if there is one, so that the domain's directory can go.
func (a Arguments) Remove() (err error) {
	root, err := a.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range []string{argumentsName, argumentsName + ".new"} {
		if rerr := root.Remove(filepath.Join(a.dir(), name)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove the arguments for QEMU: %w", rerr))
		}
	}
	return err
}
