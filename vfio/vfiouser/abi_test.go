package vfiouser

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// codec is implemented by every struct of abi.go.
type codec interface {
	MarshalBytes([]byte)
	UnmarshalBytes([]byte)
}

// The sizes are those of the C structs, and the codecs lay out the fields like encoding/binary.
func TestStructsAreLaidOutAsInC(t *testing.T) {
	for _, c := range []struct {
		name  string
		v     codec
		size  int
		cSize int
	}{
		{"vfio_user_header", &Header{}, SizeofHeader, 16},
		{"vfio_user_version", &Version{}, SizeofVersion, 4},
		{"vfio_user_dma_map", &DMAMap{}, SizeofDMAMap, 32},
		{"vfio_user_dma_unmap", &DMAUnmap{}, SizeofDMAUnmap, 24},
		{"vfio_user_device_info", &DeviceInfo{}, SizeofDeviceInfo, 16},
		{"vfio_region_info", &RegionInfo{}, SizeofRegionInfo, 32},
		{"vfio_info_cap_header", &CapHeader{}, SizeofCapHeader, 8},
		{"vfio_region_info_cap_sparse_mmap", &SparseMmap{}, SizeofSparseMmap, 16},
		{"vfio_region_sparse_mmap_area", &SparseMmapArea{}, SizeofSparseMmapArea, 16},
		{"vfio_irq_info", &IRQInfo{}, SizeofIRQInfo, 16},
		{"vfio_irq_set", &IRQSet{}, SizeofIRQSet, 20},
		{"vfio_user_region_access", &RegionAccess{}, SizeofRegionAccess, 16},
		{"vfio_user_dma_region_access", &DMARegionAccess{}, SizeofDMARegionAccess, 16},
		{"vfio_user_write_multi entry", &WriteMultiEntry{}, SizeofWriteMultiEntry, 24},
		{"vfio_user_device_feature", &DeviceFeature{}, SizeofDeviceFeature, 8},
	} {
		if c.size != c.cSize || binary.Size(c.v) != c.cSize {
			t.Errorf("%s: %d bytes declared, %d in Go, %d in C", c.name, c.size, binary.Size(c.v), c.cSize)
			continue
		}
		in := make([]byte, c.size)
		for i := range in {
			in[i] = byte(i + 1)
		}
		c.v.UnmarshalBytes(in)
		var want bytes.Buffer
		if err := binary.Write(&want, binary.LittleEndian, c.v); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, c.size)
		c.v.MarshalBytes(out)
		if !bytes.Equal(want.Bytes(), in) || !bytes.Equal(out, in) {
			t.Errorf("%s: % x read and written is % x, by encoding/binary % x", c.name, in, out, want.Bytes())
		}
	}
}

func TestCommandNames(t *testing.T) {
	if commandName(CmdRegionWriteMulti) != "REGION_WRITE_MULTI" || commandName(14) != "command 14" || commandName(999) != "command 999" {
		t.Error(commandName(CmdRegionWriteMulti), commandName(14), commandName(999))
	}
}
