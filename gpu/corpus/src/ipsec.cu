// Deciphers IPsec packets in place: 3DES (FIPS 46-3) in CBC mode (RFC 2451), 256 bytes
// of payload each. One warp takes a packet, each thread a block of eight bytes.
constexpr unsigned BLOCKS = 32;             // a packet
constexpr unsigned SLOT = 4 + 2 * BLOCKS;   // a packet's words: its association, a sequence number, the
                                            // initial vector, the payload
constexpr int ROUNDS = 16, KEYS = 2 * 3 * ROUNDS;  // a schedule's words: two a round

// The substitution boxes with the permutation after them, set by the host: boxes[b][six bits].
__device__ unsigned boxes[8][64];

__device__ unsigned rotate(unsigned x, int by) { return __funnelshift_l(x, x, by); }

// The exchange of the bits of x that mask chooses with those of y that lie by bits higher.
__device__ void exchange(unsigned &y, unsigned &x, int by, unsigned mask) {
    unsigned t = ((y >> by) ^ x) & mask;
    x ^= t;
    y ^= t << by;
}

// The function of a round. keys[0] has six bits for each of boxes 1, 3, 5 and 7 in a byte each,
// keys[1] for the others; the bytes of r, turned, have the bits of its expansion.
__device__ unsigned mix(unsigned r, const unsigned *keys) {
    unsigned odd = rotate(r, 29) ^ keys[0], even = rotate(r, 1) ^ keys[1], sum = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        sum ^= boxes[6 - 2 * k][odd >> 8 * k & 63];
        sum ^= boxes[7 - 2 * k][even >> 8 * k & 63];
    }
    return sum;
}

extern "C" __global__ void ipsec_decipher(unsigned *packets, const unsigned *schedules) {
    unsigned *packet = packets + blockIdx.x * SLOT;
    const unsigned *keys = schedules + packet[0] * KEYS;
    int at = 4 + 2 * threadIdx.x;
    unsigned left = __byte_perm(packet[at], 0, 0x0123), right = __byte_perm(packet[at + 1], 0, 0x0123);
    exchange(left, right, 4, 0x0f0f0f0f);
    exchange(left, right, 16, 0x0000ffff);
    exchange(right, left, 2, 0x33333333);
    exchange(right, left, 8, 0x00ff00ff);
    exchange(left, right, 1, 0x55555555);
    // The permutations between the three passes cancel out; the halves change places after each.
#pragma unroll 1
    for (int round = 1; round <= 3 * ROUNDS; round++, keys += 2) {
        unsigned mixed = left ^ mix(right, keys);
        left = round % ROUNDS != 0 ? right : mixed;
        right = round % ROUNDS != 0 ? mixed : right;
    }
    exchange(left, right, 1, 0x55555555);
    exchange(right, left, 8, 0x00ff00ff);
    exchange(right, left, 2, 0x33333333);
    exchange(left, right, 16, 0x0000ffff);
    exchange(left, right, 4, 0x0f0f0f0f);
    // Combine with the block before, or with the initial vector, before any is overwritten.
    left = __byte_perm(left, 0, 0x0123) ^ packet[at - 2];
    right = __byte_perm(right, 0, 0x0123) ^ packet[at - 1];
    __syncwarp();
    packet[at] = left;
    packet[at + 1] = right;
}
