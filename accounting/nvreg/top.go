package nvreg

import "fmt"

// The device table: NV_PTOP_DEVICE_INFO_CFG tells how many rows NV_PTOP_DEVICE_INFO2 has. A device
// has up to three rows, chained by bit 31. An invalid row is zero.
const (
	PTopDeviceInfoCfg = 0x0224fc
	PTopDeviceInfo2   = 0x022800 // + 4*row

	deviceRows = 3
	rowChain   = 1 << 31
)

// DeviceInfoCfg is the contents of NV_PTOP_DEVICE_INFO_CFG.
type DeviceInfoCfg struct {
	Version       uint8  // 3:0, 2 for the table of this package
	MaxDevices    uint16 // 15:4
	RowsPerDevice uint8  // 19:16
	Rows          uint16 // 31:20
}

// DecodeDeviceInfoCfg decodes the register.
func DecodeDeviceInfoCfg(v uint32) DeviceInfoCfg {
	return DeviceInfoCfg{
		Version:       uint8(v & 0xf),
		MaxDevices:    uint16(v >> 4 & 0xfff),
		RowsPerDevice: uint8(v >> 16 & 0xf),
		Rows:          uint16(v >> 20),
	}
}

// Encode returns the register's contents.
func (c DeviceInfoCfg) Encode() uint32 {
	return uint32(c.Version&0xf) | uint32(c.MaxDevices&0xfff)<<4 | uint32(c.RowsPerDevice&0xf)<<16 |
		uint32(c.Rows&0xfff)<<20
}

// DeviceType is NV_PTOP_DEVICE_INFO2_DEV_TYPE_ENUM. Values are the same on all chips.
type DeviceType uint8

// The types that matter here.
const (
	DeviceGraphics DeviceType = 0x00 // graphics and compute
	DeviceCopy     DeviceType = 0x13 // LCE, a logical copy engine
)

// Device is one entry of the device table. The bits are those of the three rows read as one 96-bit
// number.
type Device struct {
	FaultID  uint16     // 10:0
	Group    uint8      // 15:11
	Instance uint8      // 23:16
	Type     DeviceType // 30:24
	ResetID  uint8      // 39:32
	PRIBase  uint32     // 57:40, in units of 256 bytes; here in bytes
	IsEngine bool       // 62
	// Engine is the device's number on its runlist, RLENG_ID.
	Engine uint8 // 65:64
	// RunlistBase is the offset in BAR0 of its runlist's registers, RUNLIST_PRI_BASE. It is zero
	// for a device without a runlist.
	RunlistBase uint32 // 89:74, in units of 1024 bytes; here in bytes
}

// Encode returns the device's rows in the table.
func (d Device) Encode() [deviceRows]uint32 {
	row1 := uint32(d.ResetID) | d.PRIBase&0x03ffff00 | rowChain
	if d.IsEngine {
		row1 |= 1 << 30
	}
	return [deviceRows]uint32{
		uint32(d.FaultID&0x7ff) | uint32(d.Group&0x1f)<<11 | uint32(d.Instance)<<16 | uint32(d.Type&0x7f)<<24 | rowChain,
		row1,
		uint32(d.Engine&3) | d.RunlistBase&0x03fffc00,
	}
}

// decodeDevice decodes rows. Rows that a short entry lacks are zero.
func decodeDevice(rows [deviceRows]uint32) Device {
	return Device{
		FaultID:     uint16(rows[0] & 0x7ff),
		Group:       uint8(rows[0] >> 11 & 0x1f),
		Instance:    uint8(rows[0] >> 16),
		Type:        DeviceType(rows[0] >> 24 & 0x7f),
		ResetID:     uint8(rows[1]),
		PRIBase:     rows[1] & 0x03ffff00,
		IsEngine:    rows[1]&(1<<30) != 0,
		Engine:      uint8(rows[2] & 3),
		RunlistBase: rows[2] & 0x03fffc00,
	}
}

// Devices reads the device table.
func Devices(s Space) ([]Device, error) {
	v := s.Load(PTopDeviceInfoCfg)
	if refused(v) {
		return nil, fmt.Errorf("read NV_PTOP_DEVICE_INFO_CFG: the GPU answers %#x", v)
	}
	var devices []Device
	var rows [deviceRows]uint32
	n := 0
	for i := range uint32(DecodeDeviceInfoCfg(v).Rows) {
		row := s.Load(PTopDeviceInfo2 + 4*i)
		if refused(row) && n == 0 {
			return nil, fmt.Errorf("read row %d of NV_PTOP_DEVICE_INFO2: the GPU answers %#x", i, row)
		}
		if row == 0 && n == 0 {
			continue
		}
		// A longer entry begins with the rows that this package knows.
		if n < deviceRows {
			rows[n] = row
		}
		n++
		if row&rowChain == 0 {
			devices = append(devices, decodeDevice(rows))
			rows, n = [deviceRows]uint32{}, 0
		}
	}
	return devices, nil
}

// StoreDevices writes the device table.
func (f File) StoreDevices(devices []Device) {
	for i, d := range devices {
		for j, row := range d.Encode() {
			f.Store(PTopDeviceInfo2+4*uint32(deviceRows*i+j), row)
		}
	}
	f.Store(PTopDeviceInfoCfg, DeviceInfoCfg{
		Version: 2, MaxDevices: uint16(len(devices)), RowsPerDevice: deviceRows, Rows: uint16(deviceRows * len(devices)),
	}.Encode())
}
