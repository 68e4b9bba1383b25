package sandbox

import (
	"fmt"
	"os"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Filter names a set of system calls that an executor may make.
type Filter string

const (
	// Listed is for executors whose code is all known, a soft GPU's: it allows only the calls on a
	// list.
	Listed Filter = "listed"
	// Unlisted is for executors that load a vendor's library, whose needs change with its version
	// and with the programs that it compiles: it refuses only the calls that reach outside the
	// process.
	Unlisted Filter = "unlisted"
)

// FilterOf returns the filter for executors of a kind of GPU.
func FilterOf(kind string) Filter {
	if kind == "soft" {
		return Listed
	}
	return Unlisted
}

// allowed lists what Go's runtime needs, messages, files that are open or arrive in messages,
// shared memory, and the thread's own priority.
var allowed = []string{
	// memory
	"mmap", "munmap", "mprotect", "mremap", "madvise", "brk", "mincore", "mlock", "munlock",
	"memfd_create", "ftruncate", "fallocate",
	// threads, time, signals
	"futex", "exit", "exit_group", "gettid", "getpid", "getuid", "geteuid", "getgid", "getegid",
	"set_robust_list", "rseq", "restart_syscall", "sched_yield", "getcpu", "membarrier",
	"sched_getaffinity", "sched_setaffinity", "sched_getattr", "sched_setattr", "getpriority", "setpriority",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "getrusage",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait", "sigaltstack",
	"timer_create", "timer_settime", "timer_delete", "setitimer", "getrandom", "uname", "sysinfo",
	// open files
	"read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "close", "dup", "dup3",
	"fstat", "newfstatat", "statx", "readlinkat", "getdents64", "pipe2", "eventfd2",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "ppoll",
	"sendmsg", "recvmsg", "sendto", "recvfrom", "shutdown",
	"getsockname", "getpeername", "getsockopt", "setsockopt",
}

// refused lists the calls that reach outside an executor: other programs and processes, the
// kernel's own interfaces, namespaces, other users and their files.
var refused = []string{
	// other programs and processes
	"execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
	"pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
	// name spaces and mounts
	"setns", "unshare", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr",
	"fsopen", "fsconfig", "fsmount", "fspick", "open_by_handle_at", "name_to_handle_at", "fanotify_init",
	// the kernel
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"io_setup", "io_submit", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"swapon", "swapoff", "syslog", "acct", "quotactl", "nfsservctl", "lookup_dcookie", "vhangup", "personality",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
	"keyctl", "add_key", "request_key", "landlock_create_ruleset", "move_pages", "migrate_pages",
	// other users and rights
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capset",
	// files
	"link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "chown", "fchown", "lchown", "fchownat",
	"chmod", "fchmod", "fchmodat", "setxattr", "lsetxattr", "fsetxattr", "memfd_secret",
}

// namespaces holds the flags with which clone creates namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// owners lists the fcntl commands that make the kernel signal another process when a file is ready.
var owners = []uint64{unix.F_SETOWN, fSetOwnEx}

// These constants are not in package unix: F_SETOWN_EX of asm-generic/fcntl.h, and its equivalents
// as ioctls on sockets, FIOSETOWN and SIOCSPGRP of asm-generic/sockios.h.
const (
	fSetOwnEx           = 15
	fioSetOwn           = 0x8901
	siocSetProcessGroup = 0x8902
)

// policy returns the filter in the library's form for the process self. The processes of a guest
// have one user, so the filter must keep them from signalling each other.
func (f Filter) policy(known map[string]int, self int) (seccomp.Policy, error) {
	// when matches a call whose argument fulfils all the conditions.
	when := func(name string, argument uint32, op seccomp.Operation, values ...uint64) (c seccomp.NameWithConditions) {
		c.Name = name
		for _, v := range values {
			c.Conditions = append(c.Conditions, seccomp.Condition{Argument: argument, Operation: op, Value: v})
		}
		return c
	}
	// A filter can't see clone3's flags, which are in memory. Libraries fall back to clone where
	// the kernel reports that it has no clone3.
	none := seccomp.SyscallGroup{Names: there(known, "clone3"), Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)}
	switch f {
	case Listed:
		threads := seccomp.SyscallGroup{
			NamesWithCondtions: []seccomp.NameWithConditions{
				// Only threads of this process.
				when("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD),
				when("tgkill", 0, seccomp.Equal, uint64(self)),
				when("prctl", 0, seccomp.Equal, unix.PR_SET_VMA),
				when("fcntl", 1, seccomp.NotEqual, owners...),
				// The threads of /proc/self/task, to set their priority.
				when("openat", 2, seccomp.BitsNotSet, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC),
			},
			Action: seccomp.ActionAllow,
		}
		return seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls:      []seccomp.SyscallGroup{none, {Names: there(known, allowed...), Action: seccomp.ActionAllow}, threads},
		}, nil
	case Unlisted:
		some := []seccomp.NameWithConditions{
			when("socket", 0, seccomp.NotEqual, unix.AF_UNIX),
			when("socketpair", 0, seccomp.NotEqual, unix.AF_UNIX),
			when("tgkill", 0, seccomp.NotEqual, uint64(self)),
		}
		for _, command := range owners {
			some = append(some, when("fcntl", 1, seccomp.Equal, command))
		}
		for _, command := range []uint64{fioSetOwn, siocSetProcessGroup} {
			some = append(some, when("ioctl", 1, seccomp.Equal, command))
		}
		for flag := uint64(1); flag <= namespaces; flag <<= 1 {
			if flag&namespaces != 0 {
				some = append(some, when("clone", 0, seccomp.BitsSet, flag))
			}
		}
		return seccomp.Policy{
			DefaultAction: seccomp.ActionAllow,
			Syscalls: []seccomp.SyscallGroup{
				none,
				{Names: there(known, refused...), Action: seccomp.ActionErrno},
				{NamesWithCondtions: some, Action: seccomp.ActionErrno},
			},
		}, nil
	}
	return seccomp.Policy{}, fmt.Errorf("no filter %q", f)
}

// there returns those names that are system calls of the architecture.
func there(known map[string]int, names ...string) (have []string) {
	for _, name := range names {
		if _, ok := known[name]; ok {
			have = append(have, name)
		}
	}
	return have
}

// program returns the filter as a BPF program for this process alone. A call of another
// architecture, such as one of 32-bit x86 in a 64-bit process, ends the process: the numbers mean
// other calls there, and the library lets such calls pass.
func (f Filter) program() ([]unix.SockFilter, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("system calls of this architecture: %w", err)
	}
	p, err := f.policy(native.SyscallNames, os.Getpid())
	if err != nil {
		return nil, err
	}
	rules, err := p.Assemble()
	if err != nil {
		return nil, fmt.Errorf("assemble system call filter %q: %w", f, err)
	}
	const archOffset = 4 // of seccomp_data.arch
	raw, err := bpf.Assemble(append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}, rules...))
	if err != nil {
		return nil, fmt.Errorf("assemble system call filter %q: %w", f, err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}
