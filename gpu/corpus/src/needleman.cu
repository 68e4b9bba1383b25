// Global alignment of two sequences (Needleman and Wunsch, 1970). The score
// matrix has a first row and column of gap penalties; its 16×16 tiles are
// computed one diagonal of tiles a launch, and within a tile one diagonal of
// cells a step. n is the sequences' length, a multiple of 16.
constexpr int TILE = 16;

__constant__ int similarity[24 * 24];  // of residues, set by the host

extern "C" __global__ void needleman(const unsigned char *a, const unsigned char *b, int *scores, int n, int diagonal,
                                     int first, int gap) {
    __shared__ int cell[TILE + 1][TILE + 1], match[TILE][TILE];
    int tile_row = first + blockIdx.x, tile_column = diagonal - tile_row;
    int pitch = n + 1, row0 = tile_row * TILE, column0 = tile_column * TILE;
    int t = threadIdx.x;

    for (int k = 0; k < TILE; k++)
        match[k][t] = similarity[a[row0 + k] * 24 + b[column0 + t]];
    cell[0][t + 1] = scores[row0 * pitch + column0 + t + 1];
    cell[t + 1][0] = scores[(row0 + t + 1) * pitch + column0];
    if (t == 0)
        cell[0][0] = scores[row0 * pitch + column0];
    __syncthreads();

    for (int step = 0; step < 2 * TILE - 1; step++) {
        int x = t, y = step - t;
        if (y >= 0 && y < TILE)
            cell[y + 1][x + 1] =
                max(cell[y][x] + match[y][x], max(cell[y][x + 1], cell[y + 1][x]) - gap);
        __syncthreads();
    }
    for (int k = 0; k < TILE; k++)
        scores[(row0 + k + 1) * pitch + column0 + t + 1] = cell[k + 1][t + 1];
}
