package domain

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"vgpud/mediator/api"
)

// maxNumber bounds the characters of a number.
const maxNumber = 32

// parseDecimal parses numbers such as 12 or 0.5, and no other syntax of Go's.
func parseDecimal(s string) (float64, error) {
	whole, part, point := strings.Cut(s, ".")
	if len(s) > maxNumber || !digits(whole) || point && !digits(part) {
		return 0, errors.New("no number")
	}
	return strconv.ParseFloat(s, 64)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// formatDecimal formats x for parseDecimal.
func formatDecimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// parseWithin parses a decimal from low to high.
func parseWithin(s string, low, high float64) (float64, error) {
	x, err := parseDecimal(s)
	if err != nil || !(x >= low && x <= high) {
		return 0, fmt.Errorf("%s: want a number from %s to %s", quote(s), formatDecimal(low), formatDecimal(high))
	}
	return x, nil
}

// parseInt parses an integer from 0 to high.
func parseInt(s string, high int) (int, error) {
	if len(s) <= maxNumber && digits(s) {
		if n, err := strconv.Atoi(s); err == nil && n <= high {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s: want a whole number from 0 to %d", quote(s), high)
}

var units = []struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// maxSize is larger than any GPU's memory, in bytes.
const maxSize = 1 << 50

// parseSize parses a size such as 256MiB, in bytes, which must not be 0.
func parseSize(s string) (uint64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok || len(s) > maxNumber || !digits(number) {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n > maxSize/u.bytes {
			return 0, fmt.Errorf("%s: want at most %s", quote(s), formatSize(maxSize))
		}
		if n == 0 {
			return 0, fmt.Errorf("%s: want more than 0; for the default leave the attribute out", quote(s))
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%s: want a whole number with KiB, MiB, GiB or TiB, such as 256MiB", quote(s))
}

// formatSize formats a multiple of a KiB for parseSize.
func formatSize(n uint64) string {
	for _, u := range units {
		if n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(n/1024, 10) + "KiB"
}

// parseTimeLimit parses a limit of kernels' GPU time: "none" or a time such as "10s".
func parseTimeLimit(s string) (time.Duration, error) {
	if len(s) <= maxNumber {
		if d, err := api.ParseTimeLimit(s); err == nil {
			return d, nil
		}
	}
	return 0, fmt.Errorf("%s: want \"none\", or a time above 0, at most 24h, such as 10s or 500ms", quote(s))
}

func formatTimeLimit(d time.Duration) string {
	if d < 0 {
		return "none"
	}
	return d.String()
}

// powerOfTwo reports whether n is a power of two.
func powerOfTwo(n uint64) bool { return n != 0 && n&(n-1) == 0 }

// finite reports whether x is a number.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
