package vfiouser_test

import (
	"testing"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

func BenchmarkRegionRead4(b *testing.B) {
	dev := gpuLike(b)
	dev.OnRead = func(uint32, uint64, []byte) error { return nil }
	c := vfiousertest.Client(b, dev)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.ReadUint32(vfiouser.RegionBAR0, 0); err != nil {
			b.Fatal(err)
		}
	}
}
