package remote

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/unixmsg"
)

// program is one connected program, with its contexts and its doorbell.
type program struct {
	s        *Server
	c        *net.UnixConn
	uid      uint32 // the program's user
	doorbell *soft.Doorbell
	life     *os.File // of a pipe; its end tells the program that the server is gone
	contexts map[uint32]served
	last     uint32
	// controlled are the contexts whose handles were passed on.
	controlled map[uint32]bool
}

// run answers requests in order, until the connection ends or fails.
func (p *program) run() error {
	buf := make([]byte, maxPacket)
	for {
		b, files, err := receive(p.c, buf)
		if err != nil {
			return err
		}
		var req request
		if err := decode(b, &req); err != nil {
			return errors.Join(err, unixmsg.CloseAll(files))
		}
		r, out, err := p.answer(&req, files)
		err = errors.Join(err, unixmsg.CloseAll(files))
		if err != nil {
			r, out = &reply{Error: toRemote(err)}, nil
		}
		if err := p.reply(r, out); err != nil {
			return err
		}
	}
}

// reply sends a reply and closes its files. A reply that is too long goes into a file.
func (p *program) reply(r *reply, files []*os.File) error {
	b, err := encode(r)
	if err == nil && len(b) > maxPacket {
		var f *os.File
		if f, err = writeMemfd(b); err == nil {
			files = append(files, f)
			b, err = encode(&reply{InFile: true})
		}
	}
	if err == nil {
		err = send(p.c, b, files...)
	}
	return errors.Join(err, unixmsg.CloseAll(files))
}

// end closes the program's contexts and files.
func (p *program) end() error {
	var errs []error
	for _, c := range p.contexts {
		errs = append(errs, c.Close())
		p.s.uncount(c.tenant)
	}
	if p.doorbell != nil {
		errs = append(errs, p.doorbell.Close())
	}
	if p.life != nil {
		errs = append(errs, p.life.Close())
	}
	return errors.Join(errs...)
}

// answer carries out a request. The reply takes over the returned files.
func (p *program) answer(req *request, files []*os.File) (*reply, []*os.File, error) {
	if p.doorbell == nil && req.Op != opHello {
		return nil, nil, fmt.Errorf("%s before hello", req.Op)
	}
	switch req.Op {
	case opHello:
		return p.hello(req)
	case opRegisters:
		f, err := p.s.e.Registers()
		return &reply{}, []*os.File{f}, err
	case opUsage:
		u, err := p.s.e.Usage()
		return &reply{Usage: &u}, nil, err
	case opNewContext:
		return p.newContext(req)
	}
	c, ok := p.contexts[req.Context]
	if !ok {
		return nil, nil, fmt.Errorf("%s: context %d: %w", req.Op, req.Context, gpu.ErrNotFound)
	}
	switch req.Op {
	case opNewChannel:
		info, err := c.NewChannel()
		return &reply{ID: info.ID}, []*os.File{info.Ring}, err
	case opLoad:
		return p.load(c, req.Ptr, files)
	case opControl:
		return p.newControl(req.Context, c)
	case opMapHost:
		if len(files) != 1 {
			return nil, nil, fmt.Errorf("map memory of the host: %d files came along, want 1", len(files))
		}
		at, err := c.MapHost(files[0], req.Offset, req.Size, req.Ptr)
		return &reply{Ptr: at}, nil, err
	case opMapEvents:
		if len(files) != 1 {
			return nil, nil, fmt.Errorf("map the event area: %d files came along, want 1", len(files))
		}
		at, err := c.MapEvents(files[0])
		return &reply{Ptr: at}, nil, err
	}
	r, err := simple(c, req)
	if req.Op == opCloseContext {
		delete(p.contexts, req.Context)
		p.s.uncount(c.tenant)
	}
	return r, nil, err
}

// simple carries out the requests that need no file.
func simple(c soft.ContextDriver, req *request) (r *reply, err error) {
	r = &reply{}
	switch req.Op {
	case opCloseContext:
		err = c.Close()
	case opAlloc:
		r.Ptr, err = c.Alloc(req.Size)
	case opAllocAt:
		r.Offset, err = c.AllocAt(req.Ptr, req.Size)
	case opFree:
		err = c.Free(req.Ptr)
	case opMemory:
		r.Free, r.Size, err = c.Memory()
	case opUnload:
		err = c.UnloadModule(req.ID)
	case opGlobal:
		r.Ptr, r.Size, err = c.Global(req.ID, req.Name)
	case opTexture:
		if req.Texture == nil {
			return nil, fmt.Errorf("%s without a texture", req.Op)
		}
		t := *req.Texture
		for i, b := range req.Border {
			t.Border[i] = math.Float32frombits(b)
		}
		r.Handle, err = c.AddTexture(t)
	case opDropTexture:
		err = c.DropTexture(req.Handle)
	case opReference:
		r.Ptr, r.Surface, err = c.Reference(req.ID, req.Name)
	case opCloseChannel:
		err = c.CloseChannel(req.ID)
	case opPrintf:
		r.Text, err = c.Printf(req.Max)
	case opFault:
		err = c.Fault()
	case opLimit:
		r.Size, err = c.Limit(req.Limit)
	case opSetLimit:
		err = c.SetLimit(req.Limit, req.Size)
	case opEnable:
		err = c.SetEnabled(req.On)
	case opSlice:
		err = c.SetTimeslice(req.Slice)
	case opTimeLimit:
		err = c.SetKernelTimeLimit(req.TimeLimit)
	case opRegister:
		if req.Events == nil {
			return nil, fmt.Errorf("%s without a kernel", req.Op)
		}
		err = c.RegisterEvents(*req.Events)
	case opUnregister:
		r.Gone, err = c.UnregisterEvents(int(req.ID))
	case opHoldEvents:
		err = c.HoldEvents(req.On)
	case opEventCounts:
		r.Events, err = c.EventCounts()
	default:
		err = fmt.Errorf("unknown operation %.40q", req.Op)
	}
	return r, err
}

// hello begins the connection: version, properties, and the program's doorbell.
func (p *program) hello(req *request) (*reply, []*os.File, error) {
	if req.Version != protocol {
		return nil, nil, fmt.Errorf("program speaks version %d of the soft GPU's protocol, this is %d: run one release of vgpud", req.Version, protocol)
	}
	if p.doorbell != nil {
		return nil, nil, errors.New("hello twice")
	}
	b, err := p.s.e.NewDoorbell()
	if err != nil {
		return nil, nil, err
	}
	p.doorbell = b
	f, err := dup(b.File())
	if err != nil {
		return nil, nil, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make a life line: %w", err), f.Close())
	}
	p.life = os.NewFile(uintptr(ends[1]), "life")
	props := p.s.e.Properties()
	return &reply{Properties: &props}, []*os.File{f, os.NewFile(uintptr(ends[0]), "life")}, nil
}

func (p *program) newContext(req *request) (*reply, []*os.File, error) {
	t, err := p.s.count(p.uid, req.Label)
	if err != nil {
		return nil, nil, err
	}
	c, info, err := p.s.e.NewContextOf(t.owner.String(), gpu.ContextOptions{
		Label: req.Label, MemoryLimit: req.MemoryLimit, KernelTimeLimit: max(req.TimeLimit, 0),
	})
	if err != nil {
		p.s.uncount(t)
		return nil, nil, err
	}
	p.last++
	p.contexts[p.last] = served{c, t}
	return &reply{Context: p.last, Group: info.Group, Ptr: info.Base, Size: info.Size}, []*os.File{info.Memory}, nil
}

// load compiles a module whose source is in the file of the request.
func (p *program) load(c served, at gpu.Ptr, files []*os.File) (*reply, []*os.File, error) {
	if len(files) != 1 {
		return nil, nil, fmt.Errorf("load a module: %d files came along, want 1", len(files))
	}
	ctx, stop := peerContext(p.c)
	defer stop()
	done, err := p.s.compileSlot(ctx, c.tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("load a module: %w", err)
	}
	defer done()
	image, err := readFile(files[0])
	if err != nil {
		return nil, nil, fmt.Errorf("load a module: %w: %w", err, gpu.ErrInvalidModule)
	}
	info, err := c.LoadModule(ctx, image, at)
	return &reply{Module: &info}, nil, err
}

// dup duplicates f, since a reply closes its files.
func dup(f *os.File) (*os.File, error) {
	fd, err := dupCloexec(f)
	if err != nil {
		return nil, fmt.Errorf("hand out %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
