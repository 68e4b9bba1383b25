//go:build cgo

package binding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"vgpud/gpu/nvidia/inventory"
)

// library implements [inventory.Library].
type library struct {
	nvml   nvml.Interface
	gpus   []gpu
	events nvml.EventSet
}

// gpu is one GPU, valid as long as the driver has it.
type gpu struct {
	device nvml.Device
	uuid   string
}

// Open loads the library, finds the GPUs and subscribes to their errors.
func Open() (inventory.Library, error) { return open(nvml.New()) }

func open(lib nvml.Interface) (_ inventory.Library, err error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, initError(lib, ret)
	}
	l := &library{nvml: lib}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, l.failed("count the GPUs", ret)
	}
	for i := range n {
		d, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, l.failed(fmt.Sprintf("open GPU %d", i), ret)
		}
		uuid, ret := d.GetUUID()
		if ret != nvml.SUCCESS {
			return nil, l.failed(fmt.Sprintf("ask GPU %d for its UUID", i), ret)
		}
		l.gpus = append(l.gpus, gpu{d, uuid})
	}
	if l.events, ret = lib.EventSetCreate(); ret != nvml.SUCCESS {
		return nil, l.failed("prepare for errors of the GPUs", ret)
	}
	for _, g := range l.gpus {
		// A GPU without error events is watched by its samples alone.
		if ret := g.device.RegisterEvents(nvml.EventTypeXidCriticalError, l.events); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			return nil, l.failed("subscribe to errors of "+g.uuid, ret)
		}
	}
	return l, nil
}

// initError explains why the library can't be used, with advice.
func initError(lib nvml.Interface, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("libnvidia-ml.so.1 is missing: install the driver's utilities: %w", inventory.ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("the driver is not loaded: `modprobe nvidia`, and the kernel's log where that fails")
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return errors.New("the kernel driver and its libraries have different versions, as after an upgrade: reboot, or reload the module")
	case nvml.ERROR_NO_PERMISSION:
		return errors.New("no access to /dev/nvidiactl and /dev/nvidia*: run it as root")
	}
	return fmt.Errorf("start the library: %s", lib.ErrorString(ret))
}

func (l *library) failed(what string, ret nvml.Return) error {
	return fmt.Errorf("%s: %s", what, l.nvml.ErrorString(ret))
}

// Close implements [inventory.Library].
func (l *library) Close() error {
	if l.events != nil {
		if ret := l.events.Free(); ret != nvml.SUCCESS {
			return errors.Join(l.failed("end waiting for errors", ret), l.shutdown())
		}
	}
	return l.shutdown()
}

func (l *library) shutdown() error {
	if ret := l.nvml.Shutdown(); ret != nvml.SUCCESS {
		return l.failed("end the library", ret)
	}
	return nil
}

// Inventory implements [inventory.Library].
func (l *library) Inventory() (inventory.Inventory, error) {
	driver, ret := l.nvml.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return inventory.Inventory{}, l.failed("ask for the driver's version", ret)
	}
	v := inventory.Inventory{Driver: driver, CUDA: known(l.nvml.SystemGetCudaDriverVersion()), GPUs: []inventory.GPU{}}
	for i, g := range l.gpus {
		v.GPUs = append(v.GPUs, inventory.GPU{
			Index: i, UUID: g.uuid, Name: known(g.device.GetName()), PCI: address(known(g.device.GetPciInfo())),
			MemoryBytes: known(g.device.GetMemoryInfo()).Total,
			MIG:         mig(g.device), ComputeMode: computeMode(g.device), Persistence: persistence(g.device),
		})
	}
	return v, nil
}

// known returns v, or zero if the GPU does not report it.
func known[T any](v T, ret nvml.Return) T {
	if ret != nvml.SUCCESS {
		var zero T
		return zero
	}
	return v
}

// address returns the address in the kernel's form.
func address(p nvml.PciInfo) string {
	if p.BusId[0] == 0 {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

func mig(d nvml.Device) string {
	mode, _, ret := d.GetMigMode()
	if ret != nvml.SUCCESS {
		return ""
	}
	return onOff(mode == nvml.DEVICE_MIG_ENABLE)
}

func persistence(d nvml.Device) string {
	state, ret := d.GetPersistenceMode()
	if ret != nvml.SUCCESS {
		return ""
	}
	return onOff(state == nvml.FEATURE_ENABLED)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func computeMode(d nvml.Device) string {
	mode, ret := d.GetComputeMode()
	if ret != nvml.SUCCESS {
		return ""
	}
	switch mode {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
		return "exclusive-process"
	case nvml.COMPUTEMODE_PROHIBITED:
		return "prohibited"
	}
	return ""
}

// Samples implements [inventory.Library].
func (l *library) Samples() ([]inventory.Sample, error) {
	all := make([]inventory.Sample, len(l.gpus))
	for i, g := range l.gpus {
		all[i] = sample(g)
	}
	return all, nil
}

func sample(g gpu) inventory.Sample {
	d := g.device
	s := inventory.Sample{UUID: g.uuid}
	celsius, ret := d.GetTemperature(nvml.TEMPERATURE_GPU)
	if ret == nvml.ERROR_GPU_IS_LOST {
		s.Lost = true // every other query would take as long to fail
		return s
	}
	s.TemperatureCelsius = scaled(celsius, ret, 1, 1)
	milliwatts, ret := d.GetPowerUsage()
	s.PowerWatts = scaled(milliwatts, ret, 1, 1e3)
	milliwatts, ret = d.GetEnforcedPowerLimit()
	s.PowerLimitWatts = scaled(milliwatts, ret, 1, 1e3)
	megahertz, ret := d.GetClockInfo(nvml.CLOCK_SM)
	s.SMClockHertz = scaled(megahertz, ret, 1e6, 1)
	megahertz, ret = d.GetClockInfo(nvml.CLOCK_MEM)
	s.MemoryClockHertz = scaled(megahertz, ret, 1e6, 1)
	memory, ret := d.GetMemoryInfo()
	s.MemoryUsedBytes = found(memory.Used, ret)
	busy, ret := d.GetUtilizationRates()
	s.BusyRatio, s.MemoryBusyRatio = scaled(busy.Gpu, ret, 1, 100), scaled(busy.Memory, ret, 1, 100)
	// The older name exists in every driver's library.
	if reasons, ret := d.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
		s.Throttled = throttled(reasons)
	}
	s.ECCCorrected = found(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC))
	s.ECCUncorrected = found(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC))
	s.Recovery = recovery(d)
	return s
}

func found[T any](v T, ret nvml.Return) *T {
	if ret != nvml.SUCCESS {
		return nil
	}
	return &v
}

// scaled returns a value in another unit, or nil if it is unknown.
func scaled(v uint32, ret nvml.Return, times, per float64) *float64 {
	if ret != nvml.SUCCESS {
		return nil
	}
	f := float64(v) * times / per
	return &f
}

// throttled names the bits of nvmlClocksThrottleReason*. The first is GpuIdle, which is not a
// reason; the others are in the order of [inventory.ThrottleReasons].
func throttled(bits uint64) (names []string) {
	for i, name := range inventory.ThrottleReasons {
		if bits&(nvml.ClocksThrottleReasonApplicationsClocksSetting<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

var recoveries = map[nvml.DeviceGpuRecoveryAction]inventory.Recovery{
	nvml.GPU_RECOVERY_ACTION_NONE:                inventory.RecoveryNone,
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:           inventory.RecoveryReset,
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:         inventory.RecoveryReboot,
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:           inventory.RecoveryDrainPeers,
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:     inventory.RecoveryDrainAndReset,
	nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: inventory.RecoveryFabric,
}

// recovery returns the recovery that the driver wants.
func recovery(d nvml.Device) inventory.Recovery {
	field := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := d.GetFieldValues(field); ret != nvml.SUCCESS || nvml.Return(field[0].NvmlReturn) != nvml.SUCCESS {
		return ""
	}
	// An unsigned int at the beginning of the union.
	return recoveries[nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(field[0].Value[:]))]
}

// eventTimeout is the longest time, in milliseconds, that the library waits for an error before
// Next checks its context: a call can't be interrupted.
const eventTimeout = 500

// uuidOf returns the UUID of an error's GPU. A lost GPU can't be queried any more.
func (l *library) uuidOf(d nvml.Device) (string, error) {
	for _, g := range l.gpus {
		if g.device == d {
			return g.uuid, nil
		}
	}
	uuid, ret := d.GetUUID()
	if ret != nvml.SUCCESS {
		return "", l.failed("ask which GPU an error is of", ret)
	}
	return uuid, nil
}

// Next implements [inventory.Library].
func (l *library) Next(ctx context.Context) (inventory.XidEvent, error) {
	for ctx.Err() == nil {
		e, ret := l.events.Wait(eventTimeout)
		switch ret {
		case nvml.SUCCESS:
			uuid, err := l.uuidOf(e.Device)
			return inventory.XidEvent{UUID: uuid, Xid: e.EventData}, err
		case nvml.ERROR_TIMEOUT:
		default:
			return inventory.XidEvent{}, errors.New(l.nvml.ErrorString(ret))
		}
	}
	return inventory.XidEvent{}, context.Cause(ctx)
}
