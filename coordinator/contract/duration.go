package contract

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseDuration reads a duration as contracts write it: days, then what
// time.ParseDuration takes, as in "180d", "1d12h" or "30s". FormatDuration writes
// it back.
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration; write 30s, 10m, 24h or 180d", text)
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		if err != nil || text == "" {
			return 0, bad
		}
		return d, nil
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || strings.Trim(days, "-.0123456789") != "" ||
		math.Abs(n) > float64(math.MaxInt64/day) {
		return 0, bad
	}
	total := time.Duration(n * float64(day))
	if rest == "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || n < 0 || rest[0] == '+' || total+d < total {
		return 0, bad
	}
	return total + d, nil
}

// FormatDuration writes a duration shortly: "180d", "1d12h", "10m", "1.5s".
func FormatDuration(d time.Duration) string {
	days := ""
	if d >= day {
		days = fmt.Sprintf("%dd", d/day)
		d %= day
		if d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}
