package simt

import (
	"strings"
	"testing"
)

// everyForm has an instruction of every form that this GPU executes, one a line.
const everyForm = `add.u32 %r3, %r2, 5;
add.s64 %rd3, %rd1, -5; sub.s64 %rd3, %rd1, %rd3;
add.s16 %rs1, %rs2, 5; sub.u16 %rs1, %rs1, %rs2; mul.lo.u16 %rs1, %rs1, 3; mad.lo.s16 %rs1, %rs1, 3, %rs2;
mul.wide.u16 %r3, %rs1, %rs2; mul.wide.s16 %r3, %rs1, -3; mad.wide.s16 %r3, %rs1, %rs2, %r4; mad.wide.u16 %r3, %rs1, %rs2, %r4;
mul.hi.u16 %rs1, %rs2, %rs3; mul.hi.s16 %rs1, %rs2, %rs3; mad.hi.s16 %rs1, %rs2, %rs3, %rs4; mad.hi.u16 %rs1, %rs2, %rs3, %rs4;
mul.lo.s32 %r3, %r2, -7; mul.hi.s32 %r3, %r3, %r2; mul.hi.u32 %r3, %r3, %r2; mul.wide.s32 %rd3, %r3, %r2; mul.wide.u32 %rd3, %r3, %r2;
mul.lo.u64 %rd3, %rd1, %rd2; mul.hi.u64 %rd3, %rd1, %rd2; mul.hi.s64 %rd3, %rd1, %rd2; mad.lo.s64 %rd3, %rd1, %rd2, %rd3;
mad.lo.u32 %r3, %r2, 5, %r2; mad.hi.u32 %r3, %r2, 5, %r2; mad.hi.s32 %r3, %r2, 5, %r2; mad.hi.u64 %rd3, %rd1, %rd2, 5; mad.hi.s64 %rd3, %rd1, %rd2, 5;
mad.wide.u32 %rd3, %r2, 5, %rd1; mad.wide.s32 %rd3, %r2, -5, %rd1; mad.hi.sat.s32 %r3, %r2, 5, %r2;
add.sat.s32 %r3, %r2, 2147483647; sub.sat.s32 %r3, -2147483648, %r2;
add.u16x2 %r3, %r2, %r2; add.s16x2 %r3, %r2, %r2; min.u16x2 %r3, %r2, %r2; max.s16x2 %r3, %r2, %r2; max.relu.s16x2 %r3, %r2, %r2; min.relu.s32 %r3, %r2, -5;
mul24.lo.u32 %r3, %r2, %r2; mul24.hi.s32 %r3, %r2, %r2; mad24.lo.s32 %r3, %r2, %r2, %r2; mad24.hi.u32 %r3, %r2, %r2, 1; mad24.hi.sat.s32 %r3, %r2, %r2, 1;
sad.u32 %r3, %r2, 9, %r2; sad.s32 %r3, %r2, 9, %r2; sad.u64 %rd3, %rd1, %rd2, 1; sad.s16 %rs1, %rs2, 3, %rs3;
div.u32 %r3, %r2, 0; div.s32 %r3, %r2, -3; div.u64 %rd3, %rd1, 7; div.s64 %rd3, %rd1, -7; div.u16 %rs1, %rs2, 3; div.s16 %rs1, %rs2, 3;
rem.u32 %r3, %r2, 0; rem.s32 %r3, %r2, -3; rem.u64 %rd3, %rd1, 7; rem.s64 %rd3, %rd1, -7; rem.u16 %rs1, %rs2, 3; rem.s16 %rs1, %rs2, 3;
abs.s32 %r3, %r2; abs.s16 %rs1, %rs2; abs.s64 %rd3, %rd1; neg.s32 %r3, %r2; neg.s16 %rs1, %rs2; neg.s64 %rd3, %rd1;
min.u32 %r3, %r2, 5; min.s32 %r3, %r2, -5; max.u64 %rd3, %rd1, %rd2; max.s64 %rd3, %rd1, %rd2; min.u16 %rs1, %rs2, 5; max.s16 %rs1, %rs2, -5;
add.cc.u32 %r3, %r2, -1; addc.cc.u32 %r4, %r2, 0; addc.u32 %r5, %r5, 0; sub.cc.u32 %r3, %r2, 9; subc.u32 %r4, %r2, 0; subc.cc.s32 %r4, %r2, 0;
add.cc.u64 %rd3, %rd1, -1; addc.u64 %rd4, %rd2, 0; sub.cc.u64 %rd3, %rd1, 9; subc.s64 %rd4, %rd2, 0;
mad.lo.cc.u32 %r3, %r2, %r2, -1; madc.hi.u32 %r4, %r2, %r2, 0; madc.lo.cc.u32 %r4, %r2, %r2, 0; madc.hi.cc.s32 %r4, %r2, %r2, 0; mad.lo.cc.u64 %rd3, %rd1, %rd1, -1; madc.hi.u64 %rd4, %rd1, %rd1, 0;
and.b32 %r3, %r2, 15; or.b64 %rd3, %rd1, 1; xor.b16 %rs1, %rs2, 255; not.b32 %r3, %r2; not.b64 %rd3, %rd1; not.b16 %rs1, %rs2; cnot.b32 %r3, %r2; cnot.b64 %rd3, %rd1; cnot.b16 %rs1, %rs2;
and.pred %p1, %p2, %p3; or.pred %p1, %p2, !%p3; xor.pred %p1, %p2, 1; not.pred %p1, %p2; mov.pred %p1, %p2;
shl.b32 %r3, %r2, 33; shr.s32 %r3, %r2, 5; shr.u32 %r3, %r2, %r2; shl.b64 %rd3, %rd1, 3; shr.s64 %rd3, %rd1, 3; shr.u64 %rd3, %rd1, 64; shl.b16 %rs1, %rs2, 3; shr.s16 %rs1, %rs2, 3; shr.u16 %rs1, %rs2, 17;
shf.l.wrap.b32 %r3, %r2, %r4, 5; shf.l.clamp.b32 %r3, %r2, %r4, 50; shf.r.wrap.b32 %r3, %r2, %r4, 5; shf.r.clamp.b32 %r3, %r2, %r4, 50;
prmt.b32 %r3, %r2, %r4, 0x7531; prmt.b32.f4e %r3, %r2, %r4, 1; prmt.b32.rc16 %r3, %r2, %r4, 1;
lop3.b32 %r3, %r2, %r4, %r5, 0xE8; lop3.or.b32 %r3|%p1, %r2, %r4, %r5, 0x1, %p2; lop3.and.b32 %r3|%p1, %r2, %r4, %r5, 0x1, !%p2;
bfe.u32 %r3, %r2, 3, 9; bfe.s32 %r3, %r2, 3, 9; bfe.u64 %rd3, %rd1, 3, 9; bfe.s64 %rd3, %rd1, 3, 9; bfi.b32 %r3, %r2, %r3, 3, 9; bfi.b64 %rd3, %rd1, %rd2, 3, 9;
bfind.u32 %r3, %r2; bfind.s32 %r3, %r2; bfind.shiftamt.u32 %r3, %r2; bfind.u64 %r3, %rd1; bfind.s64 %r3, %rd1; bfind.shiftamt.s64 %r3, %rd1; fns.b32 %r3, %r2, 3, 2; fns.b32 %r3, %r2, 3, -2;
popc.b32 %r3, %r2; popc.b64 %r3, %rd1; clz.b32 %r3, %r2; clz.b64 %r3, %rd1; brev.b32 %r3, %r2; brev.b64 %rd3, %rd1;
szext.clamp.s32 %r3, %r2, 5; szext.wrap.u32 %r3, %r2, 37; bmsk.clamp.b32 %r3, 3, 9; bmsk.wrap.b32 %r3, 3, 9;
dp4a.u32.s32 %r3, %r2, %r2, %r2; dp2a.lo.s32.u32 %r3, %r2, %r2, %r2; dp2a.hi.u32.u32 %r3, %r2, %r2, %r2;
add.f32 %f3, %f1, 0f3F800000; add.rz.ftz.sat.f32 %f3, %f1, %f2; sub.rm.f32 %f3, %f1, %f2; sub.f32 %f3, %f1, %f2; mul.f32 %f3, %f1, %f2; mul.rp.f32 %f3, %f1, %f2;
fma.rn.f32 %f3, %f1, %f2, %f3; fma.rz.ftz.f32 %f3, %f1, %f2, %f3; mad.rn.f32 %f3, %f1, %f2, %f3; div.rn.f32 %f3, %f1, %f2; div.rz.f32 %f3, %f1, %f2; div.approx.f32 %f3, %f1, %f2; div.full.ftz.f32 %f3, %f1, %f2;
abs.f32 %f3, %f1; neg.ftz.f32 %f3, %f1; min.f32 %f3, %f1, %f2; max.NaN.f32 %f3, %f1, %f2; min.xorsign.abs.f32 %f3, %f1, %f2; max.ftz.f32 %f3, %f1, %f2; min.f32 %f3, %f1, %f2, %f3;
rcp.rn.f32 %f3, %f1; rcp.approx.ftz.f32 %f3, %f1; sqrt.rn.f32 %f3, %f1; sqrt.rz.f32 %f3, %f1; sqrt.approx.f32 %f3, %f1; rsqrt.approx.f32 %f3, %f1; sin.approx.f32 %f3, %f1; cos.approx.ftz.f32 %f3, %f1; lg2.approx.f32 %f3, %f1; ex2.approx.ftz.f32 %f3, %f1; tanh.approx.f32 %f3, %f1;
add.f64 %fd3, %fd1, 0d3FF0000000000000; sub.rz.f64 %fd3, %fd1, %fd2; mul.rn.f64 %fd3, %fd1, %fd2; fma.rn.f64 %fd3, %fd1, %fd2, %fd3; fma.rp.f64 %fd3, %fd1, %fd2, %fd3; div.rn.f64 %fd3, %fd1, %fd2; div.rm.f64 %fd3, %fd1, %fd2;
abs.f64 %fd3, %fd1; neg.f64 %fd3, %fd1; min.f64 %fd3, %fd1, %fd2; max.f64 %fd3, %fd1, %fd2; rcp.rn.f64 %fd3, %fd1; rcp.approx.ftz.f64 %fd3, %fd1; sqrt.rn.f64 %fd3, %fd1; sqrt.rp.f64 %fd3, %fd1; rsqrt.approx.f64 %fd3, %fd1; rsqrt.approx.ftz.f64 %fd3, %fd1;
copysign.f32 %f3, %f1, %f2; copysign.f64 %fd3, %fd1, %fd2; testp.finite.f32 %p1, %f1; testp.subnormal.f64 %p1, %fd1; testp.notanumber.f32 %p1, %f1;
add.f16 %rs1, %rs2, %rs3; sub.ftz.f16 %rs1, %rs2, %rs3; mul.sat.f16 %rs1, %rs2, %rs3; fma.rn.f16 %rs1, %rs2, %rs3, %rs4; fma.rn.relu.f16x2 %r3, %r2, %r4, %r5; add.f16x2 %r3, %r2, %r4; neg.f16x2 %r3, %r2; abs.bf16 %rs1, %rs2; max.bf16x2 %r3, %r2, %r4; min.NaN.f16 %rs1, %rs2, %rs3; fma.rn.bf16 %rs1, %rs2, %rs3, %rs4; ex2.approx.f16 %rs1, %rs2; tanh.approx.bf16x2 %r3, %r2; ex2.approx.ftz.bf16 %rs1, %rs2;
setp.eq.s32 %p1, %r2, 5; setp.lt.and.s32 %p1|%p2, %r2, 5, %p3; setp.gt.u64 %p1, %rd1, %rd2; setp.ltu.f32 %p1, %f1, %f2; setp.nan.f64 %p1, %fd1, %fd2; setp.ne.xor.ftz.f32 %p1, %f1, %f2, !%p3; setp.hi.u16 %p1, %rs1, %rs2; setp.lt.s16 %p1, %rs1, -3; setp.eq.b64 %p1, %rd1, 0; setp.lt.f16 %p1, %rs1, %rs2; setp.gt.f16x2 %p1|%p2, %r2, %r3;
set.lt.u32.f32 %r3, %f1, %f2; set.eq.f32.s32 %f3, %r2, 5; set.ne.and.u32.u32 %r3, %r2, 5, %p1; selp.b32 %r3, 1, %r2, %p1; selp.f64 %fd3, %fd1, 0d0000000000000000, !%p1; selp.b16 %rs1, 1, %rs2, %p1; slct.u32.s32 %r3, %r2, 7, %r2; slct.f64.f32 %fd3, %fd1, %fd2, %f1;
cvt.u64.u32 %rd3, %r2; cvt.s64.s32 %rd3, %r2; cvt.u32.u64 %r3, %rd1; cvt.s8.s32 %r3, %r2; cvt.u16.u32 %rs1, %r2; cvt.s32.s16 %r3, %rs1; cvt.sat.u8.s32 %r3, %r2; cvt.sat.s16.u32 %rs1, %r2; cvt.u32.u8 %r3, %r2; cvt.s64.s16 %rd3, %rs1;
cvt.rn.f32.s32 %f3, %r2; cvt.rz.f32.u64 %f3, %rd1; cvt.rn.f64.s64 %fd3, %rd1; cvt.rn.f64.u32 %fd3, %r2; cvt.rzi.s32.f32 %r3, %f1; cvt.rni.ftz.u8.f32 %r3, %f1; cvt.rpi.s64.f64 %rd3, %fd1; cvt.rmi.f32.f32 %f3, %f1; cvt.rzi.f64.f64 %fd3, %fd1; cvt.f64.f32 %fd3, %f1; cvt.rn.f32.f64 %f3, %fd1; cvt.sat.f32.f32 %f3, %f1; cvt.rn.ftz.f32.f64 %f3, %fd1;
cvt.rn.f16.f32 %rs1, %f1; cvt.f32.f16 %f3, %rs1; cvt.rn.bf16.f32 %rs1, %f1; cvt.f32.bf16 %f3, %rs1; cvt.rzi.s32.f16 %r3, %rs1; cvt.rn.f16.u32 %rs1, %r2; cvt.f64.f16 %fd3, %rs1; cvt.rn.f16.f64 %rs1, %fd1; cvt.rn.f16x2.f32 %r3, %f1, %f2; cvt.rn.relu.bf16x2.f32 %r3, %f1, %f2; cvt.rna.tf32.f32 %r3, %f1; cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2; cvt.rn.f16x2.e5m2x2 %r3, %rs1;
mov.u32 %r3, 5; mov.b64 %rd3, {%r2, %r3}; mov.b64 {%r3, %r4}, %rd1; mov.b64 {_, %r4}, %rd1; mov.b32 {%rs1, %rs2}, %r2; mov.b32 %r3, {%rs1, %rs2}; mov.b64 %rd3, {%rs1, %rs2, %rs3, %rs4}; mov.f32 %f1, 0f3F800000; mov.b32 %r3, %f1; mov.u32 %r3, WARP_SZ; mov.u16 %rs1, 3; mov.f64 %fd1, 1.5;
mov.u32 %r3, %ntid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r3, %laneid; mov.u32 %r3, %warpid; mov.u32 %r3, %nwarpid; mov.u32 %r3, %smid; mov.u32 %r3, %nsmid; mov.u64 %rd3, %gridid; mov.u32 %r3, %lanemask_lt; mov.u32 %r3, %lanemask_gt; mov.u32 %r3, %clock; mov.u64 %rd3, %clock64; mov.u32 %r3, %clock_hi; mov.u64 %rd3, %globaltimer; mov.u32 %r3, %globaltimer_lo; mov.u32 %r3, %dynamic_smem_size; mov.u32 %r3, %total_smem_size; mov.u32 %r3, %envreg2; mov.u32 %r3, %pm0; mov.u32 %r3, %cluster_nctaid.x; add.u32 %r3, %tid.x, %laneid;
ld.global.u32 %r3, [%rd1]; ld.global.s8 %r3, [%rd1+1]; ld.global.u8 %rs1, [%rd1]; ld.global.s16 %rd3, [%rd1]; ld.global.nc.v2.f32 {%f1, %f2}, [%rd1]; ld.global.v4.u32 {%r3, _, %r4, %r5}, [%rd1]; ld.global.v2.f64 {%fd1, %fd2}, [%rd1]; ld.volatile.global.f64 %fd1, [%rd1]; ld.relaxed.gpu.global.u32 %r3, [%rd1]; ld.acquire.sys.u64 %rd3, [%rd1]; ldu.global.u32 %r3, [%rd1]; ld.global.L1::no_allocate.L2::128B.u32 %r3, [%rd1]; ld.v4.u8 {%r3, %r4, %r5, %r6}, [%rd1];
st.global.u32 [%rd1], %r2; st.global.u8 [%rd1+1], %r2; st.global.v2.u16 [%rd1], {%rs1, 7}; st.release.gpu.global.u64 [%rd1], %rd1; st.global.v4.f32 [%rd1], {%f1, %f2, %f3, 0f00000000}; st.wt.global.f64 [%rd1], %fd1; st.u32 [%rd1+8], 9;
prefetch.global.L2 [%rd1]; prefetchu.L1 [%rd1]; discard.global.L2 [%rd1], 128; applypriority.global.L2::evict_normal [%rd1], 128; createpolicy.fractional.L2::evict_last.b64 %rd3, 1.0;
cvta.to.global.u64 %rd3, %rd1; cvta.shared.u64 %rd3, 16; cvta.to.shared.u64 %rd3, %rd3; cvta.local.u64 %rd3, %rd3; isspacep.global %p1, %rd1; isspacep.shared %p1, %rd3; isspacep.local %p1, %rd3; isspacep.const %p1, %rd1; isspacep.param %p1, %rd1;
atom.global.add.u32 %r3, [%rd1], 1; atom.global.add.s32 _, [%rd1], 1; atom.add.u64 %rd3, [%rd1], 1; atom.global.gpu.add.f32 %f1, [%rd1], 0f3F800000; atom.relaxed.gpu.global.add.f64 %fd1, [%rd1], %fd2; atom.global.add.noftz.f16x2 %r3, [%rd1], %r2; atom.global.add.noftz.f16 %rs1, [%rd1], %rs2;
atom.global.min.s32 %r3, [%rd1], %r2; atom.global.max.u64 %rd3, [%rd1], %rd2; atom.global.min.s64 %rd3, [%rd1], %rd2; atom.global.inc.u32 %r3, [%rd1], 5; atom.global.dec.u32 %r3, [%rd1], 5; atom.global.and.b32 %r3, [%rd1], 5; atom.or.b64 %rd3, [%rd1], 5; atom.global.xor.b32 %r3, [%rd1], 5; atom.global.exch.b64 %rd3, [%rd1], 5; atom.acq_rel.global.cas.b32 %r3, [%rd1], 0, 5; atom.global.cas.b64 %rd3, [%rd1], 0, 5; atom.global.cas.b16 %rs1, [%rd1], %rs2, %rs3; atom.global.max.s32 %r3, [%rd1], 1;
red.global.add.u32 [%rd1], 1; red.global.add.f32 [%rd1], %f1; red.relaxed.gpu.global.max.s32 [%rd1], %r2; red.add.u64 [%rd1], 1; red.release.global.or.b32 [%rd1], 1;
membar.gl; membar.cta; membar.sys; fence.acq_rel.gpu; fence.sc.cta; fence.proxy.async; griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 20; pmevent 7; setmaxnreg.inc.sync.aligned.u32 96;
bar.sync 0; barrier.sync 1; barrier.cta.sync.aligned 0; bar.warp.sync 0xffffffff; bar.red.popc.u32 %r3, 0, %p1; barrier.cta.red.or.pred.aligned %p1, 0, %p2; bar.red.and.pred %p1, 0, !%p2;
shfl.sync.idx.b32 %r3, %r2, 3, 31, -1; shfl.sync.up.b32 %r3|%p1, %r2, 1, 0, -1; shfl.down.b32 %r3, %r2, 1, 31; shfl.bfly.b32 %r3|%p1, %r2, 1, 31; vote.sync.all.pred %p1, %p2, -1; vote.ballot.b32 %r3, !%p2; vote.sync.uni.pred %p1, %p2, -1; vote.any.pred %p1, %p2; activemask.b32 %r3; match.any.sync.b32 %r3, %r2, -1; match.all.sync.b64 %r3|%p1, %rd1, -1; redux.sync.add.s32 %r3, %r2, -1; redux.sync.xor.b32 %r3, %r2, -1; redux.sync.min.u32 %r3, %r2, -1; elect.sync %r3|%p1, -1;
mov.u32 %r9, 16; cp.async.ca.shared.global [%r9], [%rd1], 4; cp.async.cg.shared.global.L2::128B [%r9+16], [%rd1+16], 16, 8; cp.async.ca.shared.global [%r9], [%rd1], 8, %p1;
mov.u32 %r9, 16; mbarrier.init.shared.b64 [%r9], 40; mbarrier.arrive.shared.b64 %rd3, [%r9]; mbarrier.arrive_drop.shared.b64 _, [%r9], 1; mbarrier.test_wait.shared.b64 %p1, [%r9], %rd3; mbarrier.try_wait.parity.shared.b64 %p1, [%r9], 1, 100; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r9], 16; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r9], 16; mbarrier.pending_count.b64 %r3, %rd3; cp.async.mbarrier.arrive.noinc.shared.b64 [%r9]; mbarrier.inval.shared.b64 [%r9];
mov.u32 %r9, 16; mov.u32 %r10, 32; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1], %r9, [%r10]; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], %r9; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r3,%r4}, {%r2,%r3,%r4,%r5}, {%r2,%r3}, {%r4,%r5}; mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 {%r3,%r4,%r5,%r6}, {%r2,%r3,%r4,%r5}, {%r2,%r3}, {%r4,%r5,%r6,%r7}; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd3,%fd4}, {%fd1}, {%fd2}, {%fd1,%fd2}; movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;
mov.u32 %r9, 16; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3,%r4}, [%r9]; stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r9], {%r3}; wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%fd1}, [%rd1]; wmma.load.b.sync.aligned.col.m8n8k4.f64 {%fd2}, [%rd1], 4; wmma.load.c.sync.aligned.row.m8n8k4.f64 {%fd3,%fd4}, [%rd1], 8; wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {%fd3,%fd4}, {%fd1}, {%fd2}, {%fd3,%fd4}; wmma.store.d.sync.aligned.col.m8n8k4.global.f64 [%rd1], {%fd3,%fd4}, 8;
vadd.u32.s32.s32.sat %r3, %r2.b0, %r4.h1; vabsdiff4.u32.u32.u32.add %r3, %r2, %r4, %r5; vmin.s32.s32.s32.max %r3, %r2, %r4, %r5; vmad.s32.s32.s32.shr7 %r3, %r2.b1, -%r4.b0, %r5; vset.u32.u32.lt %r3, %r2, %r4; vavrg2.u32.u32.u32 %r3.h10, %r2, %r4, %r5; vshl.u32.u32.u32.wrap %r3, %r2, %r4; vset4.u32.u32.ge %r3, %r2, %r4, %r5;
{ .reg .u32 q; .reg .v4 .f32 v; mov.u32 q, 5; add.u32 q, q, %r2; mov.f32 v.x, 0f3F800000; add.f32 v.y, v.x, v.x; }
{ .reg .v2 .u32 v, w; mov.v2.u32 v, {1, 2}; mov.v2.u32 w, v; st.global.v2.u32 [%rd1], w; ld.global.v2.u32 v, [%rd1]; mov.b64 w, %rd1; mov.b64 %rd3, w; }
`

// Every form loads and runs, also under a guard that lets some lanes through.
func TestEveryForm(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(everyForm), "\n") {
		var guarded strings.Builder
		for _, in := range strings.SplitAfter(line, ";") {
			if in = strings.TrimSpace(in); in != "" && !strings.ContainsAny(in, "}") || strings.HasPrefix(in, "mov.b") || strings.HasPrefix(in, "ld.") || strings.HasPrefix(in, "st.") {
				guarded.WriteString("	@%p19 ")
			}
			guarded.WriteString(in + "\n")
		}
		for _, body := range []string{line, "	setp.lt.u32 %p19, %r2, 20;\n" + guarded.String()} {
			if strings.HasPrefix(line, "{") && body != line {
				continue
			}
			m := newMachine(t, entry(body))
			out, _ := m.alloc(1 << 12)
			if f := m.run("k", d3(1), d3(40), 64, out, out, 3); f != nil {
				t.Errorf("%v\n%s", f, body)
			}
		}
	}
}
