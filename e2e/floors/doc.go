// Package floors holds the house to its plan: which package may import which.
// It has tests only; `make lint` runs them.
//
// The floors, from the ground, are those of docs/architecture.md. A package
// may import packages of its own floor within its own room, and of any lower
// floor. An import that climbs is a design error, not a detail. The same holds for
// tests, but for the pairs that are listed with their reasons.
package floors
