// Answers UDP packets: thread i exchanges the source and the destination of packet i's
// Ethernet, IPv4 and UDP headers. The checksums, which are sums, stay. Packets that are
// not UDP over IPv4 are left alone. One warp takes 32 packets.
constexpr unsigned SLOT = 64;  // two bytes, then the Ethernet header, then the others aligned

extern "C" __global__ void udp_ping(unsigned char *packets, unsigned *answered, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned short *ethernet = (unsigned short *)(packets + i * SLOT + 2);
    unsigned *ip = (unsigned *)(packets + i * SLOT + 16);
    bool udp = ethernet[6] == 0x0008 && (ip[0] & 0xff) == 0x45 && (ip[2] >> 8 & 0xff) == 17;
    if (udp) {
        for (int k = 0; k < 3; k++) {
            unsigned short to = ethernet[k];
            ethernet[k] = ethernet[3 + k];
            ethernet[3 + k] = to;
        }
        unsigned from = ip[3];
        ip[3] = ip[4];
        ip[4] = from;
        ip[5] = ip[5] >> 16 | ip[5] << 16;
    }
    answered[i] = udp;
}
