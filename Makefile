# What the README names: demo and test. The rest is for who works on it.
GO      ?= go
BIN     := bin
PROGRAMS := vgpud vgpuctl vgpu-hook vgpu-qemu vgpu-libvirt vgpu-nvml vgpu-placement vgpu-agent
# Those that have a C library, and need a C compiler.
WITH_C  := vgpu-libvirt vgpu-nvml
# libvirt's library, and NVIDIA's, are loaded at run time: building needs none of
# their headers. With the others, of packages net and os/user, a package is compiled once for
# programs with and without cgo, and for go vet.
TAGS    := libvirt_dlopen,netgo,osusergo
# NVIDIA's binding has all of their library, also what they advise against.
CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
export CGO_CFLAGS
# The version is that of the newest tag; a tree without a repository is told it here.
VERSION ?= $(shell scripts/version.sh)
LDFLAGS := -X vgpud/cmd/internal/version.release=$(VERSION)
# Whoever runs make trusts this tree. git does not where another owns it, as in many
# a container, and go build, which asks it for the revision, then fails.
ifndef GIT_CONFIG_COUNT
export GIT_CONFIG_COUNT := 1
export GIT_CONFIG_KEY_0 := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)
endif

.PHONY: all clang-deps corpus build build-deps install install-kubernetes uninstall packages demo demo-picture demo-vms test test-deps vm-deps unit fuzz lint mutants test-cuda suite-deps test-operators operators-deps system-deps test-nova bench-nova nova-deps vgpu-dra test-kubernetes lint-kubernetes kubernetes-deps bench bench-vm bench-loga bench-quota bench-preempt bench-case bench-edge bundle-nvidia clean

all: build

# Only what has a C library has C in it: the rest runs wherever it is copied. The
# libraries for tenants' CUDA programs go to bin/lib. vgpu-nvml's functions are found when it has
# loaded NVIDIA's library, so the dynamic linker must not look for them at the start.
# Compilers collect garbage less often: that takes a fifth of their processor time.
build: export GOGC ?= 400
build: build-deps
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(filter-out $(WITH_C),$(PROGRAMS))) ./scripts/manpage
	$(GO) build -buildmode=pie -tags $(TAGS) -ldflags '$(LDFLAGS) -extldflags "-Wl,-z,relro,-z,now"' -o $(BIN)/ ./cmd/vgpu-libvirt
	$(GO) build -buildmode=pie -tags $(TAGS) -ldflags '$(LDFLAGS) -extldflags "-Wl,-z,relro,-z,lazy"' -o $(BIN)/ ./cmd/vgpu-nvml
	GO=$(GO) scripts/cuda-libs.sh $(BIN)/lib
	@$(MAKE) --no-print-directory $(BIN)/lib/libcudart.so.13

# The CUDA runtime for guests, the last of three libraries.
$(BIN)/lib/libcudart.so.13: $(wildcard cmd/libcudart/* cmd/libcudart/toolchain/*) $(shell find cmd/libcudart/include cmd/libcuda/include -name '*.h')
	cmd/libcudart/build.sh $(BIN)/lib
	GO=$(GO) cmd/libcudart/tree.sh $(BIN)/cuda $(BIN)/lib

# clang for CUDA C++ programs, unpacked into a cache directory; nothing is installed.
clang-deps: build-deps
	@scripts/clang-deps.sh

# The PTX of the corpus of kernels, from its sources. The result is committed.
corpus: clang-deps
	GO=$(GO) gpu/corpus/compile.sh

# Installs what `make build` made, on a KVM host; in a VM: scripts/install.sh --guest. PREFIX and
# DESTDIR as usual. It does not build, since root often has no go in its path.
install:
	scripts/install.sh

# On a node of Kubernetes, beside that: the driver for it, which `make vgpu-dra` made.
install-kubernetes:
	scripts/install.sh --kubernetes

# Removes what install put there. PREFIX and DESTDIR as for install; UNINSTALLFLAGS=--purge also
# removes configuration that was changed, --guest what is installed in a VM.
uninstall:
	scripts/install.sh --remove $(UNINSTALLFLAGS)

# Packages for Debian and RPM, to bin/packages. Who publishes them sets MAINTAINER.
MAINTAINER ?= The vgpud authors <vgpud@example.org>
packages: build vgpu-dra
	GO=$(GO) VERSION=$(VERSION) MAINTAINER="$(MAINTAINER)" scripts/packages.sh $(BIN)/packages

# The main job on this machine: three guests share one GPU in software.
# DEMOFLAGS=--cuda has CUDA programs as guests.
# What make itself prints goes to standard error, so that -o json can be piped.
demo:
	@$(MAKE) --no-print-directory build $(if $(findstring --cuda,$(DEMOFLAGS)),$(BIN)/cuda-tenant) >&2
	@$(BIN)/vgpud demo $(DEMOFLAGS)

$(BIN)/cuda-tenant: cmd/vgpud/internal/demo/tenant/tenant.cu clang-deps build
	CUDA_CLANG=$${VGPUD_CLANG_DEPS:-$${XDG_CACHE_HOME:-$$HOME/.cache}/vgpud/clang}/bin/clang++ \
		$(BIN)/cuda/bin/cuda-cc -std=c++17 -O2 -Wall -Wextra -o $@ $<

# The README's picture: what the demo prints.
demo-picture: build
	$(BIN)/vgpud demo > $(BIN)/demo.txt
	$(GO) run ./scripts/terminalsvg -title 'make demo' -o docs/demo.svg < $(BIN)/demo.txt

# The same with three real VMs, under QEMU.
demo-vms:
	@$(MAKE) --no-print-directory build vm-deps >&2
	@$(BIN)/vgpud demo --vms $(DEMOFLAGS)

# Everything that must hold: style, floors, unit and whole-system tests. Fuzz targets
# run their seeds and past findings, and property tests the same cases: the same tree gives the
# same answer each time.
# The downloads go on beside the linters.
test: test-deps
	@$(MAKE) --no-print-directory -j3 lint vm-deps clang-deps
	@$(MAKE) --no-print-directory build
	@$(UNIT)

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

unit: build vm-deps clang-deps
	@$(UNIT)

UNIT = VGPUD_TEST_PROGRAMS=$(CURDIR)/$(BIN) scripts/unit.sh

# New inputs for each fuzz target, for FUZZTIME, and new cases for property tests.
fuzz: build-deps
	@scripts/fuzz.sh

lint: build-deps
	@scripts/lint.sh

# Each committed patch takes a mechanism out of a copy of the tree, and the test that
# it names must fail there. MUTANTSFLAGS="-run '^13 C'" chooses; with "-resume FILE" an interrupted
# run goes on.
mutants: build test-deps vm-deps
	$(GO) run ./e2e/mutants -tags $(TAGS) $(MUTANTSFLAGS)

# GCC's own tests of offloading and Halide's, on the software GPU, over libcuda.so.1: hours.
# SUITESFLAGS="-resume" goes on where a run ended; "-run 'halide apps'" chooses.
test-cuda: build suite-deps
	$(GO) run ./e2e/cuda/suites -bin $(BIN) -page docs/results/cuda-suites.md $(SUITESFLAGS)

# GCC with its offload compiler, Halide, and the sources of their tests, unpacked into a
# cache directory; nothing is installed.
suite-deps:
	@scripts/suite-deps.sh

# What operators use beside the command line, with Debian's Prometheus and Chromium.
# OPERATORSFLAGS="-run Scrapes" chooses.
test-operators: build packages operators-deps system-deps vm-deps
	$(GO) test -tags $(TAGS) -count 1 -timeout 120m ./e2e/operators/... -operators $(OPERATORSFLAGS)

# Prometheus and Chromium, unpacked into a cache directory; nothing is installed.
operators-deps:
	@scripts/operators-deps.sh

# Debian trixie, bootstrapped, to install packages in and to boot in a VM; nothing is installed here.
system-deps: build-deps
	@scripts/system-deps.sh

# A real Nova and Placement on this machine, as root: instances by GPU shares, and whether Placement
# still answers as recorded. NOVAFLAGS="-run Placement" chooses, -update records anew.
test-nova: build nova-deps vm-deps
	$(GO) test -tags $(TAGS) -count 1 -timeout 60m ./e2e/nova -nova $(NOVAFLAGS)

# How long Placement takes to say where flavors fit among 1,000 hosts with 8 GPUs each, to docs/results.
bench-nova: build nova-deps
	$(GO) test -tags $(TAGS) -count 1 -timeout 120m ./e2e/nova -nova -run TestScale -scale $(CURDIR)/docs/results -v

# Keystone, Placement, Nova and what they need, unpacked into a cache directory; nothing is installed.
nova-deps: build-deps
	@scripts/nova-deps.sh

# The driver for Kubernetes, a module of its own for its libraries' sake.
vgpu-dra: build-deps
	cd cmd/vgpu-dra && CGO_ENABLED=0 $(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o ../../$(BIN)/ .
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -o $(BIN)/ ./scripts/manpage

# Its tests, and then with a real API server and scheduler. KUBERNETESFLAGS="-run TestCluster/Kills"
# chooses.
test-kubernetes: vgpu-dra lint-kubernetes kubernetes-deps
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/vgpud ./cmd/vgpuctl
	cd cmd/vgpu-dra && $(GO) test -vet=off -tags $(TAGS) -count 1 .
	cd cmd/vgpu-dra && VGPUD_TEST_PROGRAMS=$(CURDIR)/$(BIN) $(GO) test -vet=off -tags $(TAGS) -count 1 -timeout 60m ./cluster -cluster $(KUBERNETESFLAGS)

# What make lint does, for vgpu-dra, whose libraries take long to compile.
lint-kubernetes: build-deps
	cd cmd/vgpu-dra && $(GO) vet -tags $(TAGS) ./... && $$(cd ../.. && $(GO) tool -n staticcheck) -tags $(TAGS) ./...

# etcd and Kubernetes' own programs, built from Go modules into a cache directory; nothing is installed.
kubernetes-deps: build-deps
	@scripts/kubernetes-deps.sh

# Go benchmarks of the hot paths, each over several runs.
bench:
	$(GO) test -run '^$$' -bench . -benchmem -count $(or $(COUNT),3) $(or $(PKG),./...)

# Launches from a VM taken apart, and what idle VMs cost.
bench-vm: vm-deps
	$(GO) test -run '^$$' -bench . -benchtime 1x ./e2e/vm

# LoGA's figures 7 to 11 in simulated time, to docs/results.
bench-loga:
	$(GO) run ./e2e/papers/loga -out docs/results

# How well caps, guarantees and budgets hold in simulated time, to docs/results.
bench-quota:
	$(GO) run ./e2e/quotas -out docs/results

# EffiSha's figures 9 to 15 and FLEP's 7 to 17 on a model of an H100, to
# docs/results.
bench-preempt:
	$(GO) run ./e2e/papers/preempt -out docs/results

# CASE's figures 5 to 9 and tables 3, 4 and 6 on machines in co-run mode, to
# docs/results. What decisions take is measured apart, since it is not the same
# each time: go run ./e2e/papers/case -time docs/results.
bench-case:
	$(GO) run ./e2e/papers/case -out docs/results

# EDGE's figures 1 and 11 to 13 on a model of its GPU's cores, to docs/results.
bench-edge:
	$(GO) run ./e2e/papers/edge -out docs/results

# What measures the product on a machine with a real GPU, without Go or a network
# there: copy bin/nvidia to it, and see bin/nvidia/run --help.
bundle-nvidia:
	e2e/nvidia/bundle.sh $(BIN)/nvidia

clean:
	rm -rf $(BIN)
