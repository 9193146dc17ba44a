// Package exact has the values of JSON as they are written: numbers of any size, and what is the
// same value in another spelling. Conditions, bindings and the fold read numbers with it, so that
// one number has one value wherever it is read.
package exact

import (
	"math/big"
	"strconv"
	"strings"
)

// Number is a decimal number of any size. Two numbers of one value are equal by ==, and the zero
// value is 0.
type Number struct {
	negative bool
	digits   string // without zeros at either end; empty: 0
	exponent int    // of ten, after the digits
}

const (
	exponentMax = 1_000_000 // of what is read; encoding/json has none
	digitsMax   = 1000      // of what is computed
	zerosMax    = 40        // that are written out
	floatMax    = 800       // digits that a nearest float64 depends on: what lies between two has 767
)

// Parse reads a number of JSON. false: it is none, or its exponent is beyond any use.
func Parse(text string) (Number, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		n, err := strconv.Atoi(digits[i+1:])
		if err != nil || n > exponentMax || n < -exponentMax {
			return Number{}, false
		}
		digits, exponent = digits[:i], n
	}
	if whole, fraction, point := strings.Cut(digits, "."); point {
		if whole == "" || fraction == "" {
			return Number{}, false
		}
		digits, exponent = whole+fraction, exponent-len(fraction)
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return Number{}, false
	}
	return normal(negative, digits, exponent), true
}

// normal is the number of digits, without the zeros that say nothing.
func normal(negative bool, digits string, exponent int) Number {
	digits = strings.TrimLeft(digits, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return Number{}
	}
	return Number{negative, short, exponent + len(digits) - len(short)}
}

// Of is a whole number.
func Of(n int64) Number {
	return ofInt(n, 0)
}

// OfFloat is a float64 as it is written shortest: that of 10.1 is 10.1. false: it is no number, or
// infinite.
func OfFloat(f float64) (Number, bool) { return Parse(strconv.FormatFloat(f, 'e', -1, 64)) }

// Digits counts the digits that say something.
func (n Number) Digits() int { return len(n.digits) }

// Whole reports whether the number has no fraction.
func (n Number) Whole() bool { return n.exponent >= 0 }

// Int64 is the number as an int64, if it is one.
func (n Number) Int64() (int64, bool) {
	if n.exponent < 0 || len(n.digits)+n.exponent > 19 {
		return 0, false
	}
	i, err := strconv.ParseInt(n.plain(), 10, 64)
	return i, err == nil
}

// Uint64 is the number as a uint64, if it is one.
func (n Number) Uint64() (uint64, bool) {
	if n.exponent < 0 || len(n.digits)+n.exponent > 20 {
		return 0, false
	}
	i, err := strconv.ParseUint(n.plain(), 10, 64)
	return i, err == nil
}

// IsLong reports whether the number has more digits than may be computed: no operation takes it.
func (n Number) IsLong() bool { return len(n.digits) > digitsMax }

// Truncate is the number without its fraction.
func (n Number) Truncate() Number {
	if n.exponent >= 0 {
		return n
	}
	return normal(n.negative, n.digits[:max(0, len(n.digits)+n.exponent)], 0)
}

// Float64 is the nearest float64; beyond all of them, infinity.
func (n Number) Float64() float64 {
	if m, ok := n.small(n.exponent); ok && len(n.digits) <= 15 {
		switch { // one operation on what floats have exactly
		case n.exponent >= 0 && n.exponent < len(tens):
			return float64(m) * float64(tens[n.exponent])
		case n.exponent < 0 && -n.exponent < len(tens):
			return float64(m) / float64(tens[-n.exponent])
		}
	}
	if rest := len(n.digits) - floatMax; rest > 0 {
		n.digits, n.exponent = n.digits[:floatMax]+"1", n.exponent+rest-1
	}
	f, _ := strconv.ParseFloat(n.scientific(), 64) // an error: it is infinity
	return f
}

// String writes the number the one way that there is for it: plain digits, without zeros at the end
// of a fraction (1500000, 10.1); from more than 40 zeros on with an exponent (1e300).
func (n Number) String() string {
	if n.exponent > zerosMax || -n.exponent-len(n.digits) > zerosMax {
		return n.scientific()
	}
	return n.plain()
}

func (n Number) sign() string {
	if n.negative {
		return "-"
	}
	return ""
}

func (n Number) plain() string {
	point := len(n.digits) + n.exponent // digits before it
	switch {
	case n.digits == "":
		return "0"
	case n.exponent >= 0:
		return n.sign() + n.digits + strings.Repeat("0", n.exponent)
	case point > 0:
		return n.sign() + n.digits[:point] + "." + n.digits[point:]
	default:
		return n.sign() + "0." + strings.Repeat("0", -point) + n.digits
	}
}

func (n Number) scientific() string {
	if n.digits == "" {
		return "0"
	}
	text, rest := n.sign()+n.digits[:1], n.digits[1:]
	if rest != "" {
		text += "." + rest
	}
	return text + "e" + strconv.Itoa(n.exponent+len(rest))
}

// Compare is negative, 0 or positive where n is less than, equal to or more than m.
func (n Number) Compare(m Number) int {
	switch {
	case n == m:
		return 0
	case n.sized() != m.sized():
		return n.sized() - m.sized()
	case n.negative:
		return m.magnitude(n)
	default:
		return n.magnitude(m)
	}
}

// sized is -1, 0 or 1.
func (n Number) sized() int {
	switch {
	case n.digits == "":
		return 0
	case n.negative:
		return -1
	default:
		return 1
	}
}

// magnitude compares without signs; neither is 0.
func (n Number) magnitude(m Number) int {
	if a, b := len(n.digits)+n.exponent, len(m.digits)+m.exponent; a != b {
		return a - b
	}
	return strings.Compare(n.digits, m.digits) // no digits end in 0, so a longer text is more
}

// Negate is -n.
func (n Number) Negate() Number {
	n.negative = n.digits != "" && !n.negative
	return n
}

// Add is n + m. false: it has more digits than may be computed, as with all that compute.
func (n Number) Add(m Number) (Number, bool) {
	exponent := min(n.exponent, m.exponent)
	if a, ok := n.small(exponent); ok {
		if b, ok := m.small(exponent); ok {
			return ofInt(a+b, exponent), true
		}
	}
	a, ok := n.at(exponent)
	b, fits := m.at(exponent)
	if !ok || !fits {
		return Number{}, false
	}
	return ofBig(a.Add(a, b), exponent), true
}

// Multiply is n * m.
func (n Number) Multiply(m Number) (Number, bool) {
	exponent := n.exponent + m.exponent
	if len(n.digits)+len(m.digits) <= smallMax {
		a, _ := n.small(n.exponent)
		b, _ := m.small(m.exponent)
		return ofInt(a*b, exponent), exponent <= exponentMax && exponent >= -exponentMax
	}
	a, ok := n.at(n.exponent)
	b, fits := m.at(m.exponent)
	if !ok || !fits || len(n.digits)+len(m.digits) > digitsMax || exponent > exponentMax ||
		exponent < -exponentMax {
		return Number{}, false
	}
	return ofBig(a.Mul(a, b), exponent), true
}

// Divide is the whole part of n / m, and what is left over, of two whole numbers; m is not 0.
func (n Number) Divide(m Number) (quotient, rest Number, ok bool) {
	a, ok := n.at(0)
	b, fits := m.at(0)
	if !ok || !fits || b.Sign() == 0 {
		return Number{}, Number{}, false
	}
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	return ofBig(q, 0), ofBig(r, 0), true
}

// smallMax are the digits of what is computed as an int64, also where two are added.
const smallMax = 18

// tens are the powers of ten that are computed with so.
var tens = func() (tens [smallMax + 1]int64) {
	for i, ten := 0, int64(1); i < len(tens); i, ten = i+1, ten*10 {
		tens[i] = ten
	}
	return tens
}()

// small is at, as an int64; false: it may have too many digits for one.
func (n Number) small(exponent int) (int64, bool) {
	zeros := n.exponent - exponent
	if n.digits == "" {
		return 0, true
	}
	if zeros < 0 || zeros > smallMax || len(n.digits)+zeros > smallMax {
		return 0, false
	}
	i := int64(0)
	for _, digit := range []byte(n.digits) {
		i = 10*i + int64(digit-'0')
	}
	if i *= tens[zeros]; n.negative {
		i = -i
	}
	return i, true
}

func ofInt(n int64, exponent int) Number {
	text, negative := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	return normal(negative, text, exponent)
}

// at is how often ten to the power of exponent, at most that of n, is in n.
func (n Number) at(exponent int) (*big.Int, bool) {
	if n.digits == "" {
		return new(big.Int), true
	}
	zeros := n.exponent - exponent
	if zeros < 0 || len(n.digits)+zeros > digitsMax {
		return nil, false
	}
	return new(big.Int).SetString(n.sign()+n.digits+strings.Repeat("0", zeros), 10)
}

func ofBig(n *big.Int, exponent int) Number {
	text, negative := strings.CutPrefix(n.String(), "-")
	return normal(negative, text, exponent)
}
