# What the README names: demo and test. The rest is for who works on it.
GO      ?= go
BIN     := bin
PROGRAMS := vgpud vgpuctl vgpu-hook vgpu-libvirt vgpu-nvml vgpu-agent
# Those that have a C library, and need a C compiler.
WITH_C  := vgpu-libvirt vgpu-nvml
# libvirt's library, and NVIDIA's, are loaded at run time: building needs none of
# their headers.
TAGS    := libvirt_dlopen
# NVIDIA's binding has all of their library, also what they advise against.
CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
export CGO_CFLAGS
# Whoever runs make trusts this tree. git does not where another owns it, as in many
# a container, and go build, which asks it for the revision, then fails.
ifndef GIT_CONFIG_COUNT
export GIT_CONFIG_COUNT := 1
export GIT_CONFIG_KEY_0 := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)
endif

.PHONY: all build build-deps install demo demo-picture demo-vms test test-deps vm-deps unit fuzz lint mutants bench bench-vm bench-loga bench-preempt bundle-nvidia clean

all: build

# Only what has a C library has C in it: the rest runs wherever it is copied.
build: build-deps
	CGO_ENABLED=0 $(GO) build -o $(BIN)/ $(addprefix ./cmd/,$(filter-out $(WITH_C),$(PROGRAMS)))
	$(GO) build -tags $(TAGS) -o $(BIN)/ $(addprefix ./cmd/,$(WITH_C))

# On a KVM host; in a VM: scripts/install.sh --guest. PREFIX and DESTDIR as usual.
install: build
	scripts/install.sh

# The main job on this machine: three guests share one GPU in software.
demo: build
	$(BIN)/vgpud demo $(DEMOFLAGS)

# The README's picture: what the demo prints.
demo-picture: build
	$(BIN)/vgpud demo > $(BIN)/demo.txt
	$(GO) run ./scripts/terminalsvg -title 'make demo' -o docs/demo.svg < $(BIN)/demo.txt

# The same with three real VMs, under QEMU.
demo-vms: build vm-deps
	$(BIN)/vgpud demo --vms $(DEMOFLAGS)

# Everything that must hold: style, floors, unit and whole-system tests, and
# each fuzz target for a short while.
test: test-deps vm-deps lint unit fuzz

# Go's modules come from a mirror; as root, get what to check it by if there is
# nothing.
build-deps:
	@scripts/build-deps.sh

# The race detector needs a C compiler; as root, get one if there is none.
test-deps: build-deps
	@scripts/test-deps.sh

# QEMU with vfio-user, libvirt, a kernel and an initramfs for guests, unpacked
# into a cache directory; nothing is installed.
vm-deps: build-deps
	@scripts/vm-deps.sh

unit: build vm-deps
	@scripts/unit.sh

fuzz: build-deps
	@scripts/fuzz.sh

lint: build-deps
	@scripts/lint.sh

# Each committed patch takes a mechanism out of a copy of the tree, and the test that
# it names must fail there. MUTANTSFLAGS="-run '^13 C'" chooses.
mutants: build test-deps vm-deps
	$(GO) run ./e2e/mutants -tags $(TAGS) $(MUTANTSFLAGS)

# Go benchmarks of the hot paths, each over several runs.
bench:
	$(GO) test -run '^$$' -bench . -benchmem -count $(or $(COUNT),3) $(or $(PKG),./...)

# Launches from a VM taken apart, and what idle VMs cost.
bench-vm: vm-deps
	$(GO) test -run '^$$' -bench . -benchtime 1x ./e2e/vm

# LoGA's figures 7 to 11 in simulated time, to docs/results.
bench-loga:
	$(GO) run ./e2e/papers/loga -out docs/results

# EffiSha's figures 9 to 15 and FLEP's 7 to 17 on a model of an H100, to
# docs/results.
bench-preempt:
	$(GO) run ./e2e/papers/preempt -out docs/results

# What measures the product on a machine with a real GPU, without Go or a network
# there: copy bin/nvidia to it, and see bin/nvidia/run --help.
bundle-nvidia:
	e2e/nvidia/bundle.sh $(BIN)/nvidia

clean:
	rm -rf $(BIN)
