// IPv4 forwarding (RFC 1812): thread i checks packet i's header, finds the longest
// prefix of its destination in a table, decrements its time to live, and stores the port that the
// packet leaves by in the slot's first two bytes. One warp takes 32 packets.
//
// The table is a trie of 16, 8 and 8 bits (Gupta, Lin and McKeown's DIR-24-8, 1998,
// with smaller steps): 65,536 words for the first 16 bits, then nodes of 256 words. A
// word with its top bit set leads to the node of that number; any other is a port.
constexpr unsigned SLOT = 64, HEADER = 16;  // two bytes, the Ethernet header, then the IP header, aligned
constexpr unsigned DROP = 0xffff, NODE = 0x80000000;

__device__ unsigned fold(unsigned sum) {
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

extern "C" __global__ void ipv4_forward(unsigned char *packets, const unsigned *table, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned *header = (unsigned *)(packets + i * SLOT + HEADER);
    unsigned port = DROP;
    unsigned life = header[2];  // time to live, protocol, checksum: bytes in the network's order
    unsigned sum = 0;
    for (int w = 0; w < 5; w++)
        sum += (header[w] & 0xffff) + (header[w] >> 16);
    if ((header[0] & 0xff) == 0x45 && fold(sum) == 0xffff && (life & 0xff) > 1) {
        unsigned to = __byte_perm(header[4], 0, 0x0123);
        unsigned entry = table[to >> 16];
        if (entry & NODE) {
            entry = table[65536 + (entry & ~NODE) * 256 + (to >> 8 & 0xff)];
            if (entry & NODE)
                entry = table[65536 + (entry & ~NODE) * 256 + (to & 0xff)];
        }
        port = entry;
    }
    if (port != DROP) {
        // RFC 1624, equation 3, with the bytes as they lie: the order does not matter to a
        // sum with its carry brought around.
        unsigned less = life - 1;
        sum = fold((~life >> 16) + (~life & 0xffff) + (less & 0xffff));
        header[2] = (less & 0xffff) | ~sum << 16;
    }
    *(unsigned short *)(packets + i * SLOT) = port;
}
