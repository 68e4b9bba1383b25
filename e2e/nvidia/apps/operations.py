"""Operations of Python packages that use CUDA, each against NumPy: operations.py torch|cupy.

A line for each: its name, a tab, and "right", or what was wrong.
"""

import sys

import numpy as np


def torch_operations():
    import torch

    gpu = torch.device("cuda:0")
    rng = np.random.default_rng(1)
    a = rng.standard_normal((300, 200), dtype=np.float32)
    b = rng.standard_normal((300, 200), dtype=np.float32)
    ta, tb = torch.from_numpy(a).to(gpu), torch.from_numpy(b).to(gpu)

    def same(got, want, tolerance=1e-5):
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=tolerance, atol=tolerance)

    def streams():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            c = ta * 2
        torch.cuda.current_stream().wait_stream(side)
        same(c + 1, a * 2 + 1)

    def graph():
        x = torch.zeros(1000, device=gpu)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            y = x + 1
        torch.cuda.synchronize()
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = x * 2 + 1
        x.fill_(4)
        g.replay()
        torch.cuda.synchronize()
        same(y, np.full(1000, 9, np.float32))

    def gradient():
        x = ta.clone().requires_grad_()
        (x * x * tb).sum().backward()
        same(x.grad, 2 * a * b)

    def training():
        x = torch.zeros(10, device=gpu, requires_grad=True)
        step = torch.optim.SGD([x], lr=0.5)
        for _ in range(30):
            step.zero_grad()
            ((x - 3) ** 2).sum().backward()
            step.step()
        same(x.detach(), np.full(10, 3, np.float32), 1e-3)

    def events():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        ta.add(tb)
        end.record()
        end.synchronize()
        assert 0 < begin.elapsed_time(end) < 1e5

    def random_numbers():
        x = torch.rand(1_000_000, device=gpu)
        assert abs(float(x.mean()) - 0.5) < 0.01 and 0 <= float(x.min()) and float(x.max()) < 1

    def convolution():
        x, w = a.reshape(1, 1, 300, 200), b[:3, :3].reshape(1, 1, 3, 3).copy()
        got = torch.nn.functional.conv2d(torch.from_numpy(x).to(gpu), torch.from_numpy(w).to(gpu))
        want = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w))
        same(got, want.numpy(), 1e-2)

    return {
        "sum of two": lambda: same(ta + tb, a + b),
        "exponential": lambda: same(torch.exp(ta), np.exp(a)),
        "sum over rows": lambda: same(ta.sum(0), a.sum(0), 1e-3),
        "cumulative sum": lambda: same(ta.cumsum(1), a.cumsum(1), 1e-3),
        "sort": lambda: same(ta.sort(1).values, np.sort(a, 1)),
        "softmax": lambda: same(ta.softmax(1), np.exp(a) / np.exp(a).sum(1, keepdims=True)),
        "index": lambda: same(ta[torch.tensor([3, 1, 299], device=gpu)], a[[3, 1, 299]]),
        "transpose": lambda: same(ta.t().contiguous(), a.T),
        "half precision": lambda: same((ta.half() + tb.half()).float(), a + b, 1e-2),
        "layer norm": lambda: same(
            torch.nn.functional.layer_norm(ta, (200,)),
            (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5), 1e-3),
        "random numbers": random_numbers,
        "streams": streams,
        "events": events,
        "graph": graph,
        "gradient": gradient,
        "training": training,
        "matrix product": lambda: same(ta @ tb.t(), a @ b.T, 1e-2),
        "convolution": convolution,
    }


def cupy_operations():
    import cupy

    rng = np.random.default_rng(1)
    a = rng.standard_normal((300, 200), dtype=np.float32)
    b = rng.standard_normal((300, 200), dtype=np.float32)
    ca, cb = cupy.asarray(a), cupy.asarray(b)

    def same(got, want, tolerance=1e-5):
        np.testing.assert_allclose(cupy.asnumpy(got), want, rtol=tolerance, atol=tolerance)

    def raw():
        k = cupy.RawKernel(r"""
        extern "C" __global__ void twice(const float *x, float *y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = 2 * x[i];
        }""", "twice")
        y = cupy.empty_like(ca)
        k(((ca.size + 255) // 256,), (256,), (ca, y, np.int32(ca.size)))
        same(y, 2 * a)

    def streams():
        with cupy.cuda.Stream(non_blocking=True) as s:
            c = ca * 2
            s.synchronize()
        same(c, a * 2)

    return {
        "sum of two": lambda: same(ca + cb, a + b),
        "exponential": lambda: same(cupy.exp(ca), np.exp(a)),
        "sum over rows": lambda: same(ca.sum(0), a.sum(0), 1e-3),
        "sort": lambda: same(cupy.sort(ca, 1), np.sort(a, 1)),
        "cumulative sum": lambda: same(cupy.cumsum(ca, 1), np.cumsum(a, 1), 1e-3),
        "index": lambda: same(ca[cupy.asarray([3, 1, 299])], a[[3, 1, 299]]),
        "elementwise kernel": lambda: same(
            cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y + 1", "f")(ca, cb), a * b + 1),
        "reduction kernel": lambda: same(
            cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = a", "0", "r")(ca), (a * a).sum(), 1e-3),
        "raw kernel": raw,
        "streams": streams,
        "random numbers": lambda: same(cupy.random.rand(1000).mean() > 0.4, True),
        "matrix product": lambda: same(ca @ cb.T, a @ b.T, 1e-2),
        "Fourier transform": lambda: same(cupy.fft.fft(ca[0]), np.fft.fft(a[0]), 1e-3),
    }


def main(package):
    operations = {"torch": torch_operations, "cupy": cupy_operations}[package]()
    for name, run in operations.items():
        said = "right"
        try:
            run()
        except Exception as e:  # one operation's failure does not end the others
            said = f"{type(e).__name__}: {e}".split("\n")[0][:200]
        print(name, said, sep="\t", flush=True)


main(sys.argv[1])
