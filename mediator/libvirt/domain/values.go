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

// maxNumber is how many characters a number may have.
const maxNumber = 32

// parseDecimal reads 12 or 0.5, and nothing else that Go takes for a number.
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

// formatDecimal is what parseDecimal reads.
func formatDecimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// parseWithin reads a decimal from low to high.
func parseWithin(s string, low, high float64) (float64, error) {
	x, err := parseDecimal(s)
	if err != nil || !(x >= low && x <= high) {
		return 0, fmt.Errorf("%s: want a number from %s to %s", show(s), formatDecimal(low), formatDecimal(high))
	}
	return x, nil
}

// parseInt reads an integer from 0 to high.
func parseInt(s string, high int) (int, error) {
	if len(s) <= maxNumber && digits(s) {
		if n, err := strconv.Atoi(s); err == nil && n <= high {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s: want a whole number from 0 to %d", show(s), high)
}

var units = []struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// maxSize is more memory than any GPU has, in bytes.
const maxSize = 1 << 50

// parseSize reads a size such as 256MiB, in bytes, which is not 0.
func parseSize(s string) (uint64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok || len(s) > maxNumber || !digits(number) {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n > maxSize/u.bytes {
			return 0, fmt.Errorf("%s: want at most %s", show(s), formatSize(maxSize))
		}
		if n == 0 {
			return 0, fmt.Errorf("%s: want more than nothing; without the attribute it has its default", show(s))
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%s: want a whole number with KiB, MiB, GiB or TiB, such as 256MiB", show(s))
}

// formatSize is what parseSize reads, of a multiple of a KiB.
func formatSize(n uint64) string {
	for _, u := range units {
		if n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(n/1024, 10) + "KiB"
}

// parseTimeLimit reads a limit of kernels' GPU time: "none" or such as "10s".
func parseTimeLimit(s string) (time.Duration, error) {
	if len(s) <= maxNumber {
		if d, err := api.ParseTimeLimit(s); err == nil {
			return d, nil
		}
	}
	return 0, fmt.Errorf("%s: want \"none\", or a time above 0, at most 24h, such as 10s or 500ms", show(s))
}

func formatTimeLimit(d time.Duration) string {
	if d < 0 {
		return "none"
	}
	return d.String()
}

// powerOfTwo is whether n is one.
func powerOfTwo(n uint64) bool { return n != 0 && n&(n-1) == 0 }

// finite is whether x is a number.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
