package main

import (
	"slices"

	"vgpud/mediator/api"
)

func taskName(t api.Task) string { return t.Name() }

// taskTable prints tasks.
var taskTable = table[api.Task]{columns: func([]api.Task) []column[api.Task] { return taskColumns }, name: taskName}

var taskColumns = slices.Concat([]column[api.Task]{
	textColumn("NAME", taskName),
	textColumn("STATE", func(t api.Task) string { return t.State }),
	textColumn("GPU", func(t api.Task) string { return t.GPU }),
	bytesColumn("MEMORY", "0B", func(t api.Task) uint64 { return t.MemoryBytes }),
	numberColumn("WAITED", seconds, func(t api.Task) float64 { return t.WaitedSeconds }),
	textColumn("WHY", func(t api.Task) string { return t.Why }),
}, inWide(
	countColumn("PASSED", func(t api.Task) int { return t.Passed }),
	countColumn("WARPS", func(t api.Task) uint64 { return t.Warps }),
	countColumn("BLOCKS", func(t api.Task) uint64 { return uint64(t.Blocks) }),
	countColumn("THREADS", func(t api.Task) uint64 { return uint64(t.Threads) }),
	countColumn("TAG", func(t api.Task) uint64 { return uint64(t.Tag) }),
	textColumn("DOMAIN", func(t api.Task) string { return t.Domain }),
	countColumn("MOVES", func(t api.Task) int { return t.Moves }),
	bytesColumn("ON-HOST", "0B", func(t api.Task) uint64 { return t.OnHostBytes }),
))
