// Finite volumes for the three-dimensional Euler equations on an unstructured
// mesh of tetrahedra, as in airflow around a wing. One iteration is three
// launches: the longest stable time step of each cell, the flux through its four
// faces, the update. A cell's five conserved variables (density, momentum,
// energy) lie variable by variable: variable v of cell i at variables[v*n + i].
constexpr int FACES = 4;
constexpr float GAMMA = 1.4f;

enum { DENSITY, MOMENTUM_X, MOMENTUM_Y, MOMENTUM_Z, ENERGY, VARIABLES };
enum { FAR_FIELD = -1, WING = -2 };  // instead of a neighbour

__constant__ float far_field[VARIABLES];

struct State {
    float density, energy, pressure;
    float3 momentum, velocity;
};

__device__ State state(float density, float3 momentum, float energy) {
    State s;
    s.density = density;
    s.momentum = momentum;
    s.energy = energy;
    s.velocity = make_float3(momentum.x / density, momentum.y / density, momentum.z / density);
    float speed2 = s.velocity.x * s.velocity.x + s.velocity.y * s.velocity.y + s.velocity.z * s.velocity.z;
    s.pressure = (GAMMA - 1.0f) * (energy - 0.5f * density * speed2);
    return s;
}

__device__ State load(const float *variables, int i, int n) {
    return state(variables[DENSITY * n + i],
                 make_float3(variables[MOMENTUM_X * n + i], variables[MOMENTUM_Y * n + i], variables[MOMENTUM_Z * n + i]),
                 variables[ENERGY * n + i]);
}

__device__ float sound(const State &s) { return sqrtf(GAMMA * s.pressure / s.density); }

__device__ float speed(const State &s) {
    return sqrtf(s.velocity.x * s.velocity.x + s.velocity.y * s.velocity.y + s.velocity.z * s.velocity.z);
}

extern "C" __global__ void euler_step(const float *variables, const float *areas, float *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    State s = load(variables, i, n);
    steps[i] = 0.5f / (sqrtf(areas[i]) * (speed(s) + sound(s)));
}

// Adds to flux[] what half of state s carries through a face with this normal.
__device__ void carry(float flux[VARIABLES], const State &s, float3 normal) {
    float through = 0.5f * (s.velocity.x * normal.x + s.velocity.y * normal.y + s.velocity.z * normal.z);
    flux[DENSITY] += through * s.density;
    flux[MOMENTUM_X] += through * s.momentum.x + 0.5f * s.pressure * normal.x;
    flux[MOMENTUM_Y] += through * s.momentum.y + 0.5f * s.pressure * normal.y;
    flux[MOMENTUM_Z] += through * s.momentum.z + 0.5f * s.pressure * normal.z;
    flux[ENERGY] += through * (s.energy + s.pressure);
}

// Face f of cell i: neighbours[f*n + i], and its normal, as long as its area is
// large, at normals[(3*f + axis)*n + i].
extern "C" __global__ void euler_flux(const float *variables, const int *neighbours, const float *normals,
                                      float *fluxes, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    State here = load(variables, i, n);
    float flux[VARIABLES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (int f = 0; f < FACES; f++) {
        int neighbour = neighbours[f * n + i];
        float3 normal = make_float3(normals[(3 * f + 0) * n + i], normals[(3 * f + 1) * n + i],
                                    normals[(3 * f + 2) * n + i]);
        if (neighbour == WING) {  // nothing flows through; it only pushes
            flux[MOMENTUM_X] += here.pressure * normal.x;
            flux[MOMENTUM_Y] += here.pressure * normal.y;
            flux[MOMENTUM_Z] += here.pressure * normal.z;
            continue;
        }
        State there = neighbour == FAR_FIELD
                          ? state(far_field[DENSITY],
                                  make_float3(far_field[MOMENTUM_X], far_field[MOMENTUM_Y], far_field[MOMENTUM_Z]),
                                  far_field[ENERGY])
                          : load(variables, neighbour, n);
        carry(flux, here, normal);
        carry(flux, there, normal);
        if (neighbour == FAR_FIELD)
            continue;
        // Artificial viscosity, in proportion to the fastest wave at the face.
        float area = sqrtf(normal.x * normal.x + normal.y * normal.y + normal.z * normal.z);
        float factor = 0.1f * area * (speed(here) + speed(there) + sound(here) + sound(there));
        flux[DENSITY] += factor * (here.density - there.density);
        flux[MOMENTUM_X] += factor * (here.momentum.x - there.momentum.x);
        flux[MOMENTUM_Y] += factor * (here.momentum.y - there.momentum.y);
        flux[MOMENTUM_Z] += factor * (here.momentum.z - there.momentum.z);
        flux[ENERGY] += factor * (here.energy - there.energy);
    }
    for (int v = 0; v < VARIABLES; v++)
        fluxes[v * n + i] = flux[v];
}

extern "C" __global__ void euler_update(float *variables, const float *fluxes, const float *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    for (int v = 0; v < VARIABLES; v++)
        variables[v * n + i] -= steps[i] * fluxes[v * n + i];
}
