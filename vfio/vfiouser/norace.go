//go:build !race

package vfiouser

func raceAcquire(uintptr) {}

func raceRelease(uintptr) {}
