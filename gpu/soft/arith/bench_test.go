package arith

import (
	"math"
	"testing"
)

// Benchmarks run over 32 lanes, as an interpreter does: ns/op is the time of one warp's
// instruction.

var laneA, laneB, laneC, laneD [32]uint32

func fillLanes(f func(i int) float32) {
	for i := range laneA {
		laneA[i] = math.Float32bits(f(i))
		laneB[i] = math.Float32bits(f(i + 7))
		laneC[i] = math.Float32bits(f(i + 11))
	}
}

func irrational(i int) float32 { return float32(math.Sqrt(float64(i + 2))) }

func whole(i int) float32 { return float32(i) }

func lanes1(b *testing.B, f func(x float32) float32) {
	fillLanes(irrational)
	b.ReportAllocs()
	for b.Loop() {
		for l := range laneD {
			laneD[l] = math.Float32bits(f(math.Float32frombits(laneA[l])))
		}
	}
}

func BenchmarkAddF32(b *testing.B) {
	fillLanes(irrational)
	for b.Loop() {
		for l := range laneD {
			laneD[l] = math.Float32bits(AddF32(math.Float32frombits(laneA[l]), math.Float32frombits(laneB[l])))
		}
	}
}

func BenchmarkFmaF32(b *testing.B) {
	for _, c := range []struct {
		name string
		fill func(int) float32
	}{{"inexact", irrational}, {"exact", whole}} {
		b.Run(c.name, func(b *testing.B) {
			fillLanes(c.fill)
			for b.Loop() {
				for l := range laneD {
					laneD[l] = math.Float32bits(FmaF32(math.Float32frombits(laneA[l]), math.Float32frombits(laneB[l]), math.Float32frombits(laneC[l])))
				}
			}
		})
	}
}

func BenchmarkFmaF32Mode(b *testing.B) {
	for _, c := range []struct {
		name string
		mode Mode
	}{{"rn.ftz", Mode{FTZ: true}}, {"rz", Mode{Round: RZ}}} {
		b.Run(c.name, func(b *testing.B) {
			fillLanes(irrational)
			for b.Loop() {
				for l := range laneD {
					laneD[l] = math.Float32bits(FmaF32Mode(math.Float32frombits(laneA[l]), math.Float32frombits(laneB[l]), math.Float32frombits(laneC[l]), c.mode))
				}
			}
		})
	}
}

func BenchmarkMinF32(b *testing.B) {
	fillLanes(irrational)
	for b.Loop() {
		for l := range laneD {
			laneD[l] = math.Float32bits(MinF32(math.Float32frombits(laneA[l]), math.Float32frombits(laneB[l])))
		}
	}
}

func BenchmarkFmaF16x2(b *testing.B) {
	fillLanes(irrational)
	for b.Loop() {
		for l := range laneD {
			laneD[l] = Packed3(laneA[l], laneB[l], laneC[l], Mode{}, F16.Fma)
		}
	}
}

func BenchmarkFmaF64Round(b *testing.B) {
	var d [32]float64
	fillLanes(irrational)
	for b.Loop() {
		for l := range d {
			d[l] = FmaF64Round(float64(math.Float32frombits(laneA[l])), 1.0/3, float64(laneC[l]), RZ)
		}
	}
}

func BenchmarkSqrtF32(b *testing.B) { lanes1(b, SqrtF32) }
func BenchmarkRcpF32(b *testing.B)  { lanes1(b, RcpF32) }
func BenchmarkEx2ApproxF32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return Ex2ApproxF32(x, false) })
}
func BenchmarkLg2ApproxF32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return Lg2ApproxF32(x, false) })
}
func BenchmarkSinApproxF32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return SinApproxF32(x, false) })
}
func BenchmarkCvtS32F32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return math.Float32frombits(uint32(CvtS32F32(x))) })
}
func BenchmarkCvtU8F32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return math.Float32frombits(uint32(CvtIntF32[uint8](x, RN))) })
}
func BenchmarkCvtF16F32(b *testing.B) {
	lanes1(b, func(x float32) float32 { return math.Float32frombits(uint32(CvtF16F32(x))) })
}

func BenchmarkLop3(b *testing.B) {
	lop := PrepareLop3(0x96)
	for b.Loop() {
		for l := range laneD {
			laneD[l] = lop.Do(laneA[l], laneB[l], laneC[l])
		}
	}
}

func BenchmarkPrmt(b *testing.B) {
	for b.Loop() {
		for l := range laneD {
			laneD[l] = Prmt(laneA[l], laneB[l], 0x5410)
		}
	}
}

func BenchmarkBfeS32(b *testing.B) {
	for b.Loop() {
		for l := range laneD {
			laneD[l] = uint32(BfeS32(int32(laneA[l]), laneB[l]&7, 9))
		}
	}
}
