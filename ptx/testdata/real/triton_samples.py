"""Two Triton kernels, compiled to PTX: triton_samples.py OUTDIR."""

import pathlib
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def softmax(out_ptr, in_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(in_ptr + row * stride + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


def main(out):
    x = torch.randn(4096, device="cuda")
    y = torch.randn_like(x)
    z = torch.empty_like(x)
    k = add[(4,)](x, y, z, x.numel(), BLOCK=1024)
    assert torch.equal(z, x + y)
    (out / "triton_add.ptx").write_text(k.asm["ptx"])

    m = torch.randn(16, 700, device="cuda")
    s = torch.empty_like(m)
    k = softmax[(16,)](s, m, m.stride(0), m.shape[1], BLOCK=1024)
    assert torch.allclose(s, m.softmax(1))
    (out / "triton_softmax.ptx").write_text(k.asm["ptx"])


main(pathlib.Path(sys.argv[1]))
