// Finds the keys whose MD5 digest (RFC 1321) is a given one. A key is eight
// bytes of small letters; thread i tries the keys numbered 4i … 4i+3, and whoever
// finds the digest notes the number.
__constant__ unsigned sines[64];  // floor(2³²·|sin(i+1)|), set by the host

__device__ unsigned rotate(unsigned x, int by) { return __funnelshift_l(x, x, by); }

// The digest of an eight-byte message, given as two words; its padding is a one bit
// and its length, 64 bits.
__device__ uint4 md5(unsigned low, unsigned high) {
    const unsigned block[16] = {low, high, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0};
    const int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    unsigned a = 0x67452301, b = 0xefcdab89, c = 0x98badcfe, d = 0x10325476;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        unsigned f;
        int word;
        switch (i / 16) {
        case 0: f = (b & c) | (~b & d); word = i; break;
        case 1: f = (d & b) | (~d & c); word = (5 * i + 1) % 16; break;
        case 2: f = b ^ c ^ d; word = (3 * i + 5) % 16; break;
        default: f = c ^ (b | ~d); word = 7 * i % 16; break;
        }
        unsigned next = b + rotate(a + f + sines[i] + block[word], shifts[i / 16][i % 4]);
        a = d;
        d = c;
        c = b;
        b = next;
    }
    return make_uint4(0x67452301 + a, 0xefcdab89 + b, 0x98badcfe + c, 0x10325476 + d);
}

extern "C" __global__ void md5_search(uint4 wanted, unsigned keys, unsigned *found) {
    unsigned first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (unsigned key = first; key < min(first + 4, keys); key++) {
        unsigned words[2] = {0, 0}, rest = key;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            words[k / 4] |= ('a' + rest % 26) << 8 * (k % 4);
            rest /= 26;
        }
        uint4 digest = md5(words[0], words[1]);
        if (digest.x == wanted.x && digest.y == wanted.y && digest.z == wanted.z && digest.w == wanted.w)
            *found = key;
    }
}
