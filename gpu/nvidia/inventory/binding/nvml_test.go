//go:build cgo

package binding

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"vgpud/gpu/nvidia/inventory"
)

// deaf returns a GPU that answers nothing beyond its name, as GeForce and vGPU do for many queries.
// Setters are left out: the mock panics there.
func deaf() *mock.Device {
	const no = nvml.ERROR_NOT_SUPPORTED
	return &mock.Device{
		GetUUIDFunc:                         func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetNameFunc:                         func() (string, nvml.Return) { return "", no },
		GetPciInfoFunc:                      func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, no },
		GetMemoryInfoFunc:                   func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, no },
		GetMigModeFunc:                      func() (int, int, nvml.Return) { return 0, 0, no },
		GetComputeModeFunc:                  func() (nvml.ComputeMode, nvml.Return) { return 0, no },
		GetPersistenceModeFunc:              func() (nvml.EnableState, nvml.Return) { return 0, no },
		RegisterEventsFunc:                  func(uint64, nvml.EventSet) nvml.Return { return no },
		GetTemperatureFunc:                  func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, no },
		GetPowerUsageFunc:                   func() (uint32, nvml.Return) { return 0, no },
		GetEnforcedPowerLimitFunc:           func() (uint32, nvml.Return) { return 0, no },
		GetClockInfoFunc:                    func(nvml.ClockType) (uint32, nvml.Return) { return 0, no },
		GetUtilizationRatesFunc:             func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, no },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 0, no },
		GetTotalEccErrorsFunc:               func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, no },
		GetFieldValuesFunc:                  func([]nvml.FieldValue) nvml.Return { return no },
	}
}

// h100 returns a GPU that answers all queries.
func h100() *mock.Device {
	d := deaf()
	d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA H100 80GB HBM3", nvml.SUCCESS }
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return nvml.PciInfo{Bus: 0x1b, BusId: [32]int8{'0'}}, nvml.SUCCESS
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 80 << 30, Used: 1 << 30}, nvml.SUCCESS
	}
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_DISABLE, 0, nvml.SUCCESS }
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.SUCCESS }
	d.GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
	d.RegisterEventsFunc = func(kinds uint64, _ nvml.EventSet) nvml.Return {
		if kinds != nvml.EventTypeXidCriticalError {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.SUCCESS
	}
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 31, nvml.SUCCESS }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 70500, nvml.SUCCESS }
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS }
	d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 2619}[c], nvml.SUCCESS
	}
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 50, Memory: 25}, nvml.SUCCESS }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
		return nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown, nvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = func(e nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
		return map[nvml.MemoryErrorType]uint64{nvml.MEMORY_ERROR_TYPE_CORRECTED: 3, nvml.MEMORY_ERROR_TYPE_UNCORRECTED: 1}[e], nvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(f []nvml.FieldValue) nvml.Return {
		f[0].Value[0] = byte(nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET)
		return nvml.SUCCESS
	}
	return d
}

// fake returns a library with one GPU. It must be shut down exactly once.
func fake(t *testing.T, d *mock.Device, events *mock.EventSet) *mock.Interface {
	shut := 0
	t.Cleanup(func() {
		if shut != 1 {
			t.Errorf("the library was ended %d times", shut)
		}
	})
	if events.FreeFunc == nil {
		events.FreeFunc = func() nvml.Return { return nvml.SUCCESS }
	}
	return &mock.Interface{
		InitFunc:                       func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:                   func() nvml.Return { shut++; return nvml.SUCCESS },
		ErrorStringFunc:                func(r nvml.Return) string { return "code " + string(rune('0'+r)) },
		DeviceGetCountFunc:             func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:     func(int) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
		EventSetCreateFunc:             func() (nvml.EventSet, nvml.Return) { return events, nvml.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.159.04", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13000, nvml.SUCCESS },
	}
}

func number[T any](v T) *T { return &v }

func TestGPUs(t *testing.T) {
	for _, c := range []struct {
		name   string
		device *mock.Device
		gpu    inventory.GPU
		sample inventory.Sample
	}{
		{
			name: "one that answers all", device: h100(),
			gpu: inventory.GPU{UUID: "GPU-1", PCI: "0000:1b:00.0", Name: "NVIDIA H100 80GB HBM3", MemoryBytes: 80 << 30, MIG: "off", ComputeMode: "exclusive-process", Persistence: "on"},
			sample: inventory.Sample{
				UUID: "GPU-1", TemperatureCelsius: number(31.), PowerWatts: number(70.5), PowerLimitWatts: number(700.),
				SMClockHertz: number(1.98e9), MemoryClockHertz: number(2.619e9), MemoryUsedBytes: number(uint64(1 << 30)),
				BusyRatio: number(0.5), MemoryBusyRatio: number(0.25), Throttled: []string{"power-cap", "hardware-thermal"},
				ECCCorrected: number(uint64(3)), ECCUncorrected: number(uint64(1)), Recovery: inventory.RecoveryDrainAndReset,
			},
		},
		{name: "one that answers nothing", device: deaf(), gpu: inventory.GPU{UUID: "GPU-1"}, sample: inventory.Sample{UUID: "GPU-1"}},
		{
			name: "one that is gone",
			device: func() *mock.Device {
				d := deaf()
				d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
				return d
			}(),
			gpu: inventory.GPU{UUID: "GPU-1"}, sample: inventory.Sample{UUID: "GPU-1", Lost: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := open(fake(t, c.device, &mock.EventSet{}))
			if err != nil {
				t.Fatal(err)
			}
			v, err := l.Inventory()
			if diff := cmp.Diff(inventory.Inventory{Driver: "580.159.04", CUDA: 13000, GPUs: []inventory.GPU{c.gpu}}, v); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
			s, err := l.Samples()
			if diff := cmp.Diff([]inventory.Sample{c.sample}, s); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrorsOfGPUs(t *testing.T) {
	d := h100()
	answers := []nvml.Return{nvml.ERROR_TIMEOUT, nvml.SUCCESS, nvml.ERROR_GPU_IS_LOST}
	l, err := open(fake(t, d, &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
		ret := answers[0]
		answers = answers[1:]
		return nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: 79}, ret
	}}))
	if err != nil {
		t.Fatal(err)
	}
	d.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST } // for this very error
	if x, err := l.Next(t.Context()); err != nil || x != (inventory.XidEvent{UUID: "GPU-1", Xid: 79}) {
		t.Errorf("%v: %v", x, err)
	}
	if x, err := l.Next(t.Context()); err == nil {
		t.Errorf("%v from a library that fails", x)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLibrariesThatDoNotStart(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND:       "libnvidia-ml.so.1 is missing: install",
		nvml.ERROR_DRIVER_NOT_LOADED:       "the driver is not loaded: `modprobe nvidia`",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "its libraries have different versions",
		nvml.ERROR_NO_PERMISSION:           "run it as root",
		nvml.ERROR_TIMEOUT:                 "start the library: it took long",
	} {
		_, err := open(&mock.Interface{InitFunc: func() nvml.Return { return ret }, ErrorStringFunc: func(nvml.Return) string { return "it took long" }})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, inventory.ErrUnavailable) != (ret == nvml.ERROR_LIBRARY_NOT_FOUND) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	t.Run("half way", func(t *testing.T) {
		lib := fake(t, deaf(), &mock.EventSet{})
		lib.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_NO_PERMISSION }
		if _, err := open(lib); err == nil || !strings.HasPrefix(err.Error(), "open GPU 0: code") {
			t.Errorf("%v", err)
		}
	})
}

func TestReasonsOfThrottling(t *testing.T) {
	for bit, name := range map[uint64]string{
		nvml.ClocksThrottleReasonApplicationsClocksSetting: "application-clocks",
		nvml.ClocksThrottleReasonSwPowerCap:                "power-cap",
		nvml.ClocksThrottleReasonHwSlowdown:                "hardware-slowdown",
		nvml.ClocksThrottleReasonSyncBoost:                 "sync-boost",
		nvml.ClocksThrottleReasonSwThermalSlowdown:         "thermal",
		nvml.ClocksThrottleReasonHwThermalSlowdown:         "hardware-thermal",
		nvml.ClocksThrottleReasonHwPowerBrakeSlowdown:      "power-brake",
		nvml.ClocksThrottleReasonDisplayClockSetting:       "display-clock",
	} {
		if diff := cmp.Diff([]string{name}, throttled(bit|nvml.ClocksThrottleReasonGpuIdle)); diff != "" {
			t.Errorf("bit %#x, -want +got:\n%s", bit, diff)
		}
	}
	if all := throttled(nvml.ClocksThrottleReasonAll); len(all) != len(inventory.ThrottleReasons) {
		t.Errorf("all reasons: %v", all)
	}
}
