package abi

import "fmt"

// PCI identity of the virtual GPU. The vendor id is of our own making and not registered with the
// PCI-SIG.
const (
	VendorID          = 0x7667
	DeviceID          = 0x0001
	SubsystemVendorID = VendorID
	SubsystemID       = 0x0001
	ClassCode         = 0x120000 // base class 0x12 processing accelerator, subclass 0, interface 0
	RevisionID        = 0x01
)

// A Version is a version of this ABI: major in the upper 16 bits, minor in the lower. Within a
// major version a newer minor only adds: commands, registers that read as zero before, feature
// bits.
type Version uint32

// The versions that this package speaks.
const (
	Version1_0 Version = 1 << 16
	// Version1_1 separates rings from windows in BAR2 ([RegRingsBytes]).
	Version1_1 = Version1_0 + 1
	// Version1_2 adds what tenants' CUDA programs need: features 14 to 17, 19, and [RegUUID].
	Version1_2 = Version1_1 + 1
	// Version1_3 adds contexts that float: [FeatureFloating], [FeatureAlike] and [TaskTable];
	// [RegLatencyNanos] and [RegSuspensionNanos]; and persistent kernels no longer count the tasks
	// that they have finished.
	Version1_3 = Version1_2 + 1
	// Version1_4 adds event kernels: [FeatureEventKernels], [FeatureEventDoorbells] and BAR4, the event
	// area.
	Version1_4 = Version1_3 + 1

	// Newest is the version that the device offers.
	Newest = Version1_4
	// Oldest is the oldest version that the device still accepts.
	Oldest = Version1_0
)

// Major returns the part of the version that must agree.
func (v Version) Major() int { return int(v >> 16) }

// Minor returns the part of the version that only adds.
func (v Version) Minor() int { return int(v & 0xffff) }

// String returns the version as "major.minor".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }

// Negotiate returns the version to select when a device offers the versions from oldest to newest
// and the driver speaks those from driverOldest to driverNewest: the newest that both know. The
// error names both ranges.
func Negotiate(oldest, newest, driverOldest, driverNewest Version) (Version, error) {
	v := min(newest, driverNewest)
	if v < oldest || v < driverOldest {
		return 0, fmt.Errorf("no common ABI version: the device offers %v to %v, the driver speaks %v to %v",
			oldest, newest, driverOldest, driverNewest)
	}
	return v, nil
}

// Features is a set of optional abilities. The device offers a set, and the driver accepts a part
// of it. A command that needs a feature which is not offered completes with [StatusNotSupported].
// Unless [FeatureContexts] is accepted, a second context is refused with [ErrorLimit]; nothing else
// depends on what was accepted.
type Features uint64

// The feature bits.
const (
	FeatureContexts         Features = 1 << iota // more than one context: several tenant processes in a guest
	FeatureInline                                // launch parameters, attributes and names in continuation entries
	FeatureEvents                                // events with times, and channels waiting for them
	FeatureCopy3D                                // pitched copies of 2 and 3 dimensions
	FeatureGlobals                               // module globals by name
	FeatureFunctions                             // function attributes, parameter layout, occupancy
	FeatureLaunchAttributes                      // attribute records on a launch
	FeatureCubin                                 // modules as machine code
	FeaturePrintf                                // the device-side printf buffer can be drained
	FeatureLimits                                // context limits can be read and set
	FeatureEventKernels                          // kernels registered once and launched by a store (EDGE §III.A, §III.E)
	FeatureEventDoorbells                        // doorbell registers for event kernels that nobody polls for (EDGE §III.C)
	FeatureGPUTime                               // completions carry start and end on the GPU's clock
	FeaturePreempt                               // launches of kernels that leave the GPU when asked: AttributePreempt
	FeatureWindowAddresses                       // kernels reach staging windows at GPU addresses
	FeatureChosenAddresses                       // MEM_ALLOC takes an address
	FeatureTriggeredEvents                       // events that the guest triggers
	FeatureIdentity                              // all of CUDA's device attributes at once
	FeatureFloating                              // contexts without a GPU of their own, placed where there is room (CASE)
	FeatureTextures                              // arrays, textures and surfaces
	FeatureAlike                                 // the GPUs of contexts that float differ in nothing that a program can ask for

	featureEnd
)

// AllFeatures is every feature that this package has a layout for.
const AllFeatures = featureEnd - 1

var featureNames = []string{
	"contexts", "inline", "events", "copy3d", "globals", "functions", "launch-attributes",
	"cubin", "printf", "limits", "event-kernels", "event-doorbells", "gpu-time",
	"preempt", "window-addresses", "chosen-addresses", "triggered-events", "identity",
	"floating", "textures", "alike",
}

// String lists the names of the features that are set.
func (f Features) String() string { return bitNames(uint64(f), featureNames) }

// bitNames joins the names of the bits set in v by "|"; a bit without a name appears as its number.
func bitNames(v uint64, names []string) string {
	if v == 0 {
		return "none"
	}
	s := ""
	for bit := 0; v != 0; bit, v = bit+1, v>>1 {
		if v&1 == 0 {
			continue
		}
		if s != "" {
			s += "|"
		}
		if bit < len(names) && names[bit] != "" {
			s += names[bit]
		} else {
			s += fmt.Sprintf("bit%d", bit)
		}
	}
	return s
}
