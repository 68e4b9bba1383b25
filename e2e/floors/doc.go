// Package floors checks which package may import which. It has tests only; `make lint` runs them.
//
// docs/architecture.md describes the layers. A package may import packages of its own layer and of
// any lower one, and so may its tests. An import that climbs is an error of the design.
package floors
