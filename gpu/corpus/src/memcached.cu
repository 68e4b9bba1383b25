// Memcached's GET over UDP: thread i parses request i, looks its key up and writes the
// answer's packet, or nothing where the request is malformed. One warp takes 32
// requests. Keys have 16 bytes, values two. It uses no shared memory.
//
// The table is a hash table of sets of 16 entries. SETs are the host's.
constexpr unsigned SLOT = 96;       // a packet's bytes: two, Ethernet 14, IPv4 20, UDP 8, frame 8, text
constexpr unsigned SETS = 1024, WAYS = 16;
constexpr unsigned TEXT = 52;       // where the text begins

struct Entry {
    unsigned key[4];
    unsigned hash;   // of the key
    unsigned used;   // 0: the entry is free
    unsigned value;  // two bytes
    unsigned time;   // of the last GET
};

__device__ unsigned rotate(unsigned x, int by) { return __funnelshift_l(x, x, by); }

// Jenkins' lookup3 (2006) of four words.
__device__ unsigned hash(const unsigned key[4]) {
    unsigned a = 0xdeadbeef + 16 + key[0], b = 0xdeadbeef + 16 + key[1], c = 0xdeadbeef + 16 + key[2];
    a -= c, a ^= rotate(c, 4), c += b;
    b -= a, b ^= rotate(a, 6), a += c;
    c -= b, c ^= rotate(b, 8), b += a;
    a -= c, a ^= rotate(c, 16), c += b;
    b -= a, b ^= rotate(a, 19), a += c;
    c -= b, c ^= rotate(b, 4), b += a;
    a += key[3];
    c ^= b, c -= rotate(b, 14);
    a ^= c, a -= rotate(c, 11);
    b ^= a, b -= rotate(a, 25);
    c ^= b, c -= rotate(b, 16);
    a ^= c, a -= rotate(c, 4);
    b ^= a, b -= rotate(a, 14);
    c ^= b, c -= rotate(b, 24);
    return c;
}

__device__ unsigned swapped(unsigned x) { return (x >> 8 & 0xff) | (x & 0xff) << 8; }

extern "C" __global__ void memcached_get(const unsigned char *requests, Entry *table, unsigned char *answers,
                                         unsigned *lengths, unsigned now, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const unsigned *in = (const unsigned *)(requests + i * SLOT);
    unsigned *out = (unsigned *)(answers + i * SLOT);
    // IPv4 without options, UDP to port 11211, "get ", and the line's end after the key.
    if ((in[4] & 0xff) != 0x45 || (in[6] >> 8 & 0xff) != 17 || in[9] >> 16 != 0xcb2b || in[13] != 0x20746567 ||
        (in[18] & 0xffff) != 0x0a0d) {
        lengths[i] = 0;
        return;
    }
    unsigned key[4] = {in[14], in[15], in[16], in[17]};
    unsigned h = hash(key);
    Entry *set = table + h % SETS * WAYS;
    unsigned value = 0;
    bool found = false;
    for (unsigned way = 0; way < WAYS; way++) {
        Entry *e = set + way;
        if (e->used && e->hash == h && e->key[0] == key[0] && e->key[1] == key[1] && e->key[2] == key[2] &&
            e->key[3] == key[3]) {
            value = e->value;
            e->time = now;
            found = true;
            break;
        }
    }
    unsigned short *text = (unsigned short *)(answers + i * SLOT + TEXT);
    unsigned length = 5;
    if (found) {
        text[0] = 0x4156, text[1] = 0x554c, text[2] = 0x2045;  // "VALUE "
        for (int k = 0; k < 4; k++)
            text[3 + 2 * k] = key[k], text[4 + 2 * k] = key[k] >> 16;
        text[11] = 0x3020, text[12] = 0x3220, text[13] = 0x0a0d;  // " 0 2\r\n"
        text[14] = value, text[15] = 0x0a0d;
        text += 16;
        length += 32;
    }
    text[0] = 0x4e45, text[1] = 0x0d44, *(unsigned char *)(text + 2) = 0x0a;  // "END\r\n"
    // Ethernet's addresses change places, the frame's header stays.
    const unsigned short *from = (const unsigned short *)in;
    unsigned short *to = (unsigned short *)out;
    for (int k = 0; k < 3; k++)
        to[1 + k] = from[4 + k], to[4 + k] = from[1 + k];
    to[7] = from[7];
    out[11] = in[11], out[12] = in[12];
    // IPv4: length, no fragment, 64 hops; the checksum is over these.
    unsigned first = 0x45 | swapped(28 + 8 + length) << 16, second = in[5] & 0xffff, third = 64 | 17 << 8;
    unsigned sum = (first & 0xffff) + (first >> 16) + second + third;
    sum += (in[7] & 0xffff) + (in[7] >> 16) + (in[8] & 0xffff) + (in[8] >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    out[4] = first;
    out[5] = second;
    out[6] = third | ~sum << 16;
    out[7] = in[8];
    out[8] = in[7];
    out[9] = in[9] >> 16 | in[9] << 16;
    out[10] = swapped(8 + 8 + length);  // UDP's checksum is left out
    lengths[i] = TEXT - 2 + length;
}
