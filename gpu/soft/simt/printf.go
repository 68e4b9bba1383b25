package simt

import (
	"bytes"
	"math"
	"strconv"
)

// Limits of one call of vprintf: width, precision and strings in bytes.
const (
	maxFormat = 4096
	maxWidth  = 256
	maxString = 1024
	maxText   = 16 << 10 // of the whole output
)

// arguments reads vprintf's arguments in order. Reading unmapped memory gives zeros.
type arguments interface {
	next(size int) uint64    // the next argument, of 4 or 8 bytes
	text(addr uint64) []byte // the string at a generic address, at most maxString bytes
}

// verb is one conversion of a format.
type verb struct {
	minus, plus, space, alt, zero bool
	width, precision              int // precision is -1 if not given
	long                          bool
	letter                        byte
}

// printf appends the output of C's printf to dst, as CUDA defines it: with C's flags, widths,
// precisions and sizes; %n is not a conversion.
func printf(dst, format []byte, args arguments) []byte {
	for len(format) > 0 && len(dst) < maxText {
		i := bytes.IndexByte(format, '%')
		if i < 0 {
			return append(dst, format...)
		}
		dst = append(dst, format[:i]...)
		v, n, ok := parseVerb(format[i:], args)
		switch {
		case !ok:
			dst = append(dst, format[i:i+n]...)
		case v.letter == '%':
			dst = append(dst, '%')
		default:
			dst = v.append(dst, args)
		}
		format = format[i+n:]
	}
	return dst
}

// parseVerb parses the conversion at the start of text, and returns its length.
func parseVerb(text []byte, args arguments) (v verb, n int, ok bool) {
	v.precision = -1
	n = 1
flags:
	for ; n < len(text); n++ {
		switch text[n] {
		case '-':
			v.minus = true
		case '+':
			v.plus = true
		case ' ':
			v.space = true
		case '#':
			v.alt = true
		case '0':
			v.zero = true
		default:
			break flags
		}
	}
	number := func() int {
		if n < len(text) && text[n] == '*' {
			n++
			return int(int32(args.next(4)))
		}
		k := 0
		for ; n < len(text) && text[n] >= '0' && text[n] <= '9'; n++ {
			k = min(k*10+int(text[n]-'0'), maxWidth)
		}
		return k
	}
	if v.width = number(); v.width < 0 {
		v.minus, v.width = true, -v.width
	}
	v.width = min(v.width, maxWidth)
	if n < len(text) && text[n] == '.' {
		n++
		v.precision = min(number(), maxWidth)
	}
	for ; n < len(text); n++ {
		switch text[n] {
		case 'l', 'j', 'z', 't', 'q', 'L':
			v.long = true
			continue
		case 'h':
			continue
		}
		break
	}
	if n == len(text) {
		return v, n, false
	}
	v.letter = text[n]
	return v, n + 1, bytes.IndexByte([]byte("%diuoxXcspfFeEgGaA"), v.letter) >= 0
}

// append formats the verb's argument.
func (v *verb) append(dst []byte, args arguments) []byte {
	size := 4
	if v.long {
		size = 8
	}
	switch v.letter {
	case 'd', 'i':
		x := int64(args.next(size))
		if size == 4 {
			x = int64(int32(x))
		}
		magnitude := uint64(x)
		if x < 0 {
			magnitude = -magnitude
		}
		return v.integer(dst, v.sign(x < 0), strconv.AppendUint(nil, magnitude, 10))
	case 'u':
		return v.integer(dst, "", strconv.AppendUint(nil, args.next(size), 10))
	case 'o':
		digits := strconv.AppendUint(nil, args.next(size), 8)
		if v.alt && digits[0] != '0' {
			digits = append([]byte{'0'}, digits...)
		}
		return v.integer(dst, "", digits)
	case 'x', 'X', 'p':
		if v.letter == 'p' {
			size = 8
		}
		x := args.next(size)
		prefix := ""
		if v.alt && x != 0 || v.letter == 'p' {
			prefix = "0x"
		}
		digits := strconv.AppendUint(nil, x, 16)
		if v.letter == 'X' {
			digits, prefix = bytes.ToUpper(digits), string(bytes.ToUpper([]byte(prefix)))
		}
		return v.integer(dst, prefix, digits)
	case 'c':
		return v.pad(dst, "", []byte{byte(args.next(4))}, false)
	case 's':
		s := args.text(args.next(8))
		if v.precision >= 0 && v.precision < len(s) {
			s = s[:v.precision]
		}
		return v.pad(dst, "", s, false)
	}
	return v.float(dst, math.Float64frombits(args.next(8)))
}

func (v *verb) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case v.plus:
		return "+"
	case v.space:
		return " "
	}
	return ""
}

func (v *verb) integer(dst []byte, prefix string, digits []byte) []byte {
	if v.precision == 0 && len(digits) == 1 && digits[0] == '0' {
		digits = nil
	}
	if missing := v.precision - len(digits); missing > 0 {
		digits = append(bytes.Repeat([]byte{'0'}, missing), digits...)
	}
	return v.pad(dst, prefix, digits, v.precision < 0)
}

func (v *verb) float(dst []byte, x float64) []byte {
	sign := v.sign(math.Signbit(x))
	x = math.Abs(x)
	upper := v.letter < 'a'
	letter := v.letter | 0x20
	var body []byte
	switch {
	case math.IsInf(x, 0):
		body = []byte("inf")
	case x != x:
		body = []byte("nan")
	case letter == 'a':
		body = hexFloat(x, v.precision)
		sign, body = sign+string(body[:2]), body[2:]
	default:
		p := v.precision
		if p < 0 {
			p = 6
		}
		if letter == 'g' && p == 0 {
			p = 1
		}
		body = strconv.AppendFloat(nil, x, letter, p, 64)
		if v.alt && letter == 'g' {
			body = alternate(body, p)
		} else if v.alt && p == 0 && bytes.IndexByte(body, '.') < 0 {
			body = append(body, '.')
		}
	}
	if upper {
		body, sign = bytes.ToUpper(body), string(bytes.ToUpper([]byte(sign)))
	}
	return v.pad(dst, sign, body, !math.IsInf(x, 0) && x == x)
}

// alternate adds the trailing zeros that %#g keeps and %g omits.
func alternate(body []byte, p int) []byte {
	mantissa, exponent := body, []byte(nil)
	if i := bytes.IndexByte(body, 'e'); i >= 0 {
		mantissa, exponent = body[:i:i], body[i:]
	}
	digits := 0
	for _, c := range bytes.TrimLeft(mantissa, "0.") {
		if c != '.' {
			digits++
		}
	}
	if bytes.IndexByte(mantissa, '.') < 0 {
		mantissa = append(mantissa, '.')
	}
	for ; digits < p; digits++ {
		mantissa = append(mantissa, '0')
	}
	return append(mantissa, exponent...)
}

// hexFloat formats %a. Go writes the exponent with at least two digits, C does not.
func hexFloat(x float64, precision int) []byte {
	b := strconv.AppendFloat(nil, x, 'x', precision, 64)
	if i := bytes.IndexByte(b, 'p'); i >= 0 && i+2 < len(b)-1 && b[i+2] == '0' {
		b = append(b[:i+2], b[i+3:]...)
	}
	return b
}

// pad pads a conversion to its width.
func (v *verb) pad(dst []byte, prefix string, body []byte, zeros bool) []byte {
	missing := max(v.width-len(prefix)-len(body), 0)
	switch {
	case v.minus:
		dst = append(append(dst, prefix...), body...)
		return append(dst, bytes.Repeat([]byte{' '}, missing)...)
	case v.zero && zeros:
		dst = append(dst, prefix...)
		return append(append(dst, bytes.Repeat([]byte{'0'}, missing)...), body...)
	}
	dst = append(dst, bytes.Repeat([]byte{' '}, missing)...)
	return append(append(dst, prefix...), body...)
}
