// Integer instructions that ordinary code seldom meets, one row of n results
// each.
extern "C" __global__ void integers32(const unsigned *x, const unsigned *y, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned a = x[i], b = y[i];
    int row = 0;
    auto put = [&](unsigned value) { out[row++ * n + i] = value; };
    put(__popc(a));
    put(__clz(a));
    put(__ffs(a));
    put(__brev(a));
    put(__byte_perm(a, b, b & 0x7777));
    put(__funnelshift_l(a, b, b));
    put(__funnelshift_r(a, b, a));
    put(__funnelshift_lc(a, b, b & 63));
    put(__umulhi(a, b));
    put(__mulhi(int(a), int(b)));
    put(__umul24(a, b));
    put(__sad(int(a), int(b), a));
    put(__usad(a, b, 7));
    put(__uhadd(a, b));
    put(__dp4a(int(a), int(b), int(a)));
    put(__dp4a(a, b, b));
    put(a / (b | 1));
    put(a % (b | 1));
    put(int(a) / (int(b & 0xffff) + 1));
    put(int(a) % -(int(b & 0xff) + 1));
    put(int(a) >> (b & 31));
    put(abs(int(a)));
    put(b < a ? a - b : 0);
    put((int)(signed char)a * (int)(short)b);
}

extern "C" __global__ void integers64(const unsigned long long *x, const unsigned long long *y, unsigned long long *out,
                                      int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long a = x[i], b = y[i];
    int row = 0;
    auto put = [&](unsigned long long value) { out[row++ * n + i] = value; };
    put(__popcll(a));
    put(__clzll(a));
    put(__ffsll(a));
    put(__brevll(a));
    put(__umul64hi(a, b));
    put(__mul64hi((long long)a, (long long)b));
    put(a * b);
    put(a / (b >> 20 | 1));
    put(a % (b >> 20 | 1));
    put((long long)a / ((long long)(b >> 40) + 1));
    put((long long)a >> (b & 63));
    put(a << (b & 63));
    put(max((long long)a, (long long)b));
    put(min(a, b));
    put((unsigned long long)(unsigned)a * (unsigned)b);
}
