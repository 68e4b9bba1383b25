// Molecular dynamics: the force on each atom from the Lennard-Jones potential of
// the atoms in its neighbour list, within a cutoff. The list is built on the GPU
// too, from a grid of cells no smaller than the cutoff. Units are reduced
// (ε = σ = 1); the box is not periodic.

struct Cells {
    int side;    // cells along each edge of the box
    float size;  // length of a cell's edge
};

// Lists for each atom the others closer than the cutoff, at most `most`, in the
// order of cells and of atoms within a cell: atoms are sorted by cell, and
// starts[c] … starts[c+1] are those of cell c. The list lies column by column, so
// that neighbouring threads read neighbouring words.
extern "C" __global__ void lj_neighbours(const float4 *atoms, const int *starts, int *lists, int *lengths,
                                         Cells cells, float cutoff2, int most, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float4 p = atoms[i];
    int cx = int(p.x / cells.size), cy = int(p.y / cells.size), cz = int(p.z / cells.size);
    int length = 0;
    for (int z = max(cz - 1, 0); z <= min(cz + 1, cells.side - 1); z++)
        for (int y = max(cy - 1, 0); y <= min(cy + 1, cells.side - 1); y++)
            for (int x = max(cx - 1, 0); x <= min(cx + 1, cells.side - 1); x++) {
                int cell = (z * cells.side + y) * cells.side + x;
                for (int j = starts[cell]; j < starts[cell + 1]; j++) {
                    float4 q = atoms[j];
                    float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
                    float r2 = dx * dx + dy * dy + dz * dz;
                    if (j != i && r2 < cutoff2 && length < most)
                        lists[length++ * n + i] = j;
                }
            }
    lengths[i] = length;
}

extern "C" __global__ void lj_forces(const float4 *atoms, const int *lists, const int *lengths, float4 *forces,
                                     int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float4 p = atoms[i];
    float fx = 0.0f, fy = 0.0f, fz = 0.0f, energy = 0.0f;
    for (int k = 0; k < lengths[i]; k++) {
        float4 q = atoms[lists[k * n + i]];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float inverse2 = 1.0f / (dx * dx + dy * dy + dz * dz);
        float inverse6 = inverse2 * inverse2 * inverse2;
        // −dU/dr · 1/r = 24·(2·r⁻¹² − r⁻⁶)·r⁻²
        float f = 24.0f * inverse6 * (2.0f * inverse6 - 1.0f) * inverse2;
        fx = fmaf(f, dx, fx);
        fy = fmaf(f, dy, fy);
        fz = fmaf(f, dz, fz);
        energy += 4.0f * inverse6 * (inverse6 - 1.0f);
    }
    forces[i] = make_float4(fx, fy, fz, energy);
}
