// IPv6 forwarding (RFC 8200): thread i finds the longest prefix of packet i's
// destination in a table, decrements its hop limit, and stores the port that the
// packet leaves by in the slot's first two bytes. One warp takes 32 packets.
//
// The table is one of hashes (Waldvogel, Varghese, Turner and Plattner, 1997): the
// length is searched for by halving. An entry says that a prefix or the beginning of a
// longer one is in the table, and which port the longest prefix so far has. Prefixes
// are at most 48 bits long, as those between providers are.
constexpr unsigned SLOT = 64, HEADER = 16;  // as in ipv4.cu
constexpr unsigned DROP = 0xffff;

struct Entry {
    unsigned high;  // the prefix's first 32 bits
    unsigned rest;  // its next 16 bits, then 64 less its length in 16; 0: the entry is free
    unsigned port;
    unsigned unused;
};

// Little is kept in registers, so that a warp of these fits where one of any other kernel was.
extern "C" __global__ void ipv6_forward(unsigned char *packets, const Entry *table, unsigned mask, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned char *packet = packets + i * SLOT;
    unsigned *header = (unsigned *)(packet + HEADER);
    unsigned short *port = (unsigned short *)packet;
    *port = DROP;
    bool forward = false;
    if ((header[0] >> 4 & 0xf) == 6 && header[1] >> 24 > 1) {
        unsigned long long to =
            (unsigned long long)__byte_perm(header[6], 0, 0x0123) << 32 | __byte_perm(header[7], 0, 0x0123);
        unsigned beyond = 64 - 24;  // the bits of the address after the prefix
#pragma unroll 1
        for (unsigned steps = 0x1236c; beyond < 64; steps >>= 4) {  // 12, 6, 3, 2, 1
            unsigned long long prefix;
            // Not >>, of which with << the compiler makes an AND with a mask in two more registers.
            asm("shr.u64 %0, %1, %2;" : "=l"(prefix) : "l"(to), "r"(beyond));
            prefix <<= beyond;
            unsigned high = prefix >> 32, rest = (unsigned)prefix | beyond;
            unsigned at = (high ^ rest * 0x85ebca6b) * 0x9e3779b1;
            at ^= at >> 15;
            bool found = false;
            for (;; at++) {
                const Entry *e = table + (at & mask);
                if (e->rest == 0)
                    break;
                if (e->rest == rest && e->high == high) {
                    found = true;
                    forward = e->port != DROP;
                    *port = e->port;
                    break;
                }
            }
            if (steps == 0)
                break;
            beyond = (rest & 0xffff) + (found ? -(steps & 15) : steps & 15);
        }
    }
    if (forward)
        (*(volatile unsigned char *)(packet + HEADER + 7))--;  // the hop limit, read again
}
