// Package rmtest is a software version of NVIDIA's kernel driver, as far as package rm uses it. It
// has the same layouts, and models files, clients, objects, disables counted per channel, time
// slices, and the record of context switches. Its errors are those observed on an H100's driver,
// 580.159.04.
package rmtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm"
	"vgpud/gpu/nvidia/rm/abi"
)

// Driver is a driver with one GPU, in PCI slot 0000:3b:00.0. It is an [rm.Kernel]. Its methods may
// be called from any goroutine.
type Driver struct {
	mu      sync.Mutex
	files   map[uint64]*file // by inode
	next    abi.Handle       // client
	now     time.Duration
	refuse  map[uint32]abi.Status // by command
	lost    bool
	missing int // lookups of clients that don't exist
	own     []*os.File
	groups  uint16
	user    bool // the caller is no administrator
}

// New returns a driver.
func New() *Driver {
	return &Driver{files: make(map[uint64]*file), next: abi.RS_CLIENT_HANDLE_BASE + 0x1234, refuse: make(map[uint32]abi.Status)}
}

// The GPU's address.
const (
	PCI   = "0000:3b:00.0"
	gpuID = 0x3b00
)

// file is an open device node, to which descriptors refer.
type file struct {
	control bool
	tied    bool // a GPU's node that is tied to a control node
	clients map[abi.Handle]*client
	memory  *memory // shown by mmap
	write   bool    // the memory may be written
	opened  int     // number of descriptors
}

// open makes a file and its first descriptor. The caller holds mu.
func (d *Driver) open(control bool) (*os.File, error) {
	fd, err := unix.MemfdCreate("nvidia", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "nvidia")
	ino, err := inode(fd)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d.files[ino] = &file{control: control, clients: make(map[abi.Handle]*client)}
	return f, nil
}

func inode(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// Open implements [rm.Kernel].
func (d *Driver) Open(name string) (rm.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name != rm.ControlNode && name != "nvidia0" {
		return nil, fmt.Errorf("open /dev/%s: %w", name, unix.ENOENT)
	}
	if d.lost && name != rm.ControlNode {
		return nil, fmt.Errorf("open /dev/%s: %w", name, unix.EIO)
	}
	f, err := d.open(name == rm.ControlNode)
	if err != nil {
		return nil, err
	}
	return d.node(f)
}

// Own implements [rm.Kernel].
func (d *Driver) Own() ([]rm.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var nodes []rm.Node
	for _, f := range d.own {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		n, err := d.node(os.NewFile(uintptr(fd), "nvidia"))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// Adopt implements [rm.Kernel].
func (d *Driver) Adopt(f *os.File) (rm.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.node(f)
	if err == nil && !n.file.control {
		err = errors.New("not a control node")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return n, nil
}

// node returns the node of a descriptor. The caller holds mu.
func (d *Driver) node(f *os.File) (*node, error) {
	ino, err := inode(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	n := &node{d: d, f: f, file: d.files[ino]}
	if n.file == nil {
		return nil, errors.New("not the driver's")
	}
	n.file.opened++
	return n, nil
}

// SetNow sets the GPU's clock.
func (d *Driver) SetNow(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = t
}

// Refuse makes the driver answer s to a command from now on. OK reverts it.
func (d *Driver) Refuse(c abi.Command, s abi.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse[uint32(c)] = s
}

// Drop removes CAP_SYS_ADMIN from the caller.
func (d *Driver) Drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.user = true
}

// Admin implements [rm.Kernel].
func (d *Driver) Admin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.user
}

// Lose takes the GPU off its bus.
func (d *Driver) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
}

// Missing returns the number of lookups of clients that don't exist. Each is a line in the kernel's
// log.
func (d *Driver) Missing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missing
}

// Descriptors returns the number of descriptors of all files.
func (d *Driver) Descriptors() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, f := range d.files {
		n += f.opened
	}
	return n
}

// client finds the client, which must belong to the file. The caller holds d.mu.
func (d *Driver) client(f *file, h abi.Handle) (*client, abi.Status) {
	if c, ok := f.clients[h]; ok {
		return c, abi.NV_OK
	}
	for _, other := range d.files {
		if _, ok := other.clients[h]; ok {
			return nil, abi.NV_ERR_INVALID_CLIENT
		}
	}
	d.missing++
	return nil, abi.NV_ERR_INVALID_CLIENT
}

// newClient makes a client of the file. The caller holds mu.
func (d *Driver) newClient(f *file) *client {
	c := &client{handle: d.next, objects: make(map[abi.Handle]*object), free: 0xcaf00000}
	d.next = abi.RS_CLIENT_HANDLE_BASE + (d.next-abi.RS_CLIENT_HANDLE_BASE+1)%abi.ClientSpan
	c.objects[c.handle] = &object{class: abi.NV01_ROOT_CLIENT}
	f.clients[c.handle] = c
	return c
}

// node is an [rm.Node].
type node struct {
	d    *Driver
	f    *os.File
	file *file
}

func (n *node) FD() int { return int(n.f.Fd()) }

func (n *node) Close() error {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if err := n.f.Close(); err != nil {
		return err
	}
	if n.file.opened--; n.file.opened == 0 {
		clear(n.file.clients)
	}
	return nil
}

func (n *node) Map(length int, write bool) (rm.Mapping, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	m := n.file.memory
	if m == nil || length > len(m.b) || write != n.file.write {
		return nil, unix.EINVAL
	}
	return m, nil
}
