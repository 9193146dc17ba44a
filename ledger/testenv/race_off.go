//go:build !race

package testenv

// Race reports whether the race detector runs: it makes programs several times slower, so
// that a bound in time must be a wider one.
const Race = false
