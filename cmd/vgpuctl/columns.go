package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// column is one column of a table.
type column[T any] struct {
	head  string
	wide  bool // only with -o wide, and in CSV
	value func(T) string
	// unused reports whether the column says nothing of these items, so that -o wide leaves it out.
	// CSV has it. nil is never.
	unused func([]T) bool
	// plain returns the value for programs, in CSV; nil returns what value does.
	plain func(T) string
}

// textColumn shows a text, or "-".
func textColumn[T any](head string, text func(T) string) column[T] {
	return column[T]{head: head, value: func(it T) string {
		if s := text(it); s != "" {
			return s
		}
		return "-"
	}, plain: text}
}

// countColumn shows a whole number.
func countColumn[T any, N int | uint64](head string, n func(T) N) column[T] {
	return column[T]{head: head, value: func(it T) string { return fmt.Sprint(n(it)) }}
}

// numberColumn shows a number as text formats it. In CSV it is the number itself.
func numberColumn[T any](head string, text func(float64) string, x func(T) float64) column[T] {
	return column[T]{
		head: head, value: func(it T) string { return text(x(it)) },
		plain: func(it T) string { return strconv.FormatFloat(x(it), 'g', -1, 64) },
	}
}

// optionalColumn shows a number that there may be, as text formats it, or "-". In CSV it is the number
// itself, or nothing.
func optionalColumn[T any](head string, text func(float64) string, x func(T) (float64, bool)) column[T] {
	shown := func(it T, text func(float64) string, none string) string {
		if x, ok := x(it); ok {
			return text(x)
		}
		return none
	}
	plain := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	return column[T]{
		head: head, value: func(it T) string { return shown(it, text, "-") },
		plain: func(it T) string { return shown(it, plain, "") },
	}
}

// bytesColumn shows a size; 0 is shown as none. In CSV it is in bytes.
func bytesColumn[T any](head, none string, n func(T) uint64) column[T] {
	return column[T]{
		head: head, value: func(it T) string {
			if n(it) == 0 {
				return none
			}
			return size(n(it))
		},
		plain: func(it T) string { return strconv.FormatUint(n(it), 10) },
	}
}

// inWide returns the columns as ones that only -o wide shows.
func inWide[T any](columns ...column[T]) []column[T] {
	for i := range columns {
		columns[i].wide = true
	}
	return columns
}

// ifUsed leaves the columns out of -o wide where none of the items uses what they are about.
func ifUsed[T any](uses func(T) bool, columns ...column[T]) []column[T] {
	for i := range columns {
		columns[i].unused = func(items []T) bool { return !slices.ContainsFunc(items, uses) }
	}
	return columns
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// ratio formats a configured part of the GPU's time; 0 means none.
func ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%g%%", math.Round(x*1e11)/1e9)
}

func seconds(x float64) string { return fmt.Sprintf("%.2f", x) }

func number(x float64) string { return fmt.Sprintf("%g", x) }

// size formats a number of bytes in the largest unit of which there is one.
func size(n uint64) string {
	for _, u := range []struct {
		bytes uint64
		name  string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.bytes {
			return strconv.FormatFloat(math.Round(float64(n)/float64(u.bytes)*10)/10, 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatUint(n, 10) + "B"
}

// mean formats the mean time of n events that took so many seconds together.
func mean(seconds float64, n uint64) string {
	if n == 0 {
		return "-"
	}
	return brief(seconds / float64(n))
}

// brief formats a short time, rounded to the microsecond.
func brief(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
