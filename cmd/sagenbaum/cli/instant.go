package cli

import "time"

// Instant reads an instant as a person writes it: a time of today, a day, a day with a time, or as
// RFC 3339 writes it. What names no time zone is in the one of now. Not ok: it is none of them, or
// before 1970.
func Instant(text string, now time.Time) (at time.Time, ok bool) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0,
				now.Location()), true
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04",
		"2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, t.Year() >= 1970
		}
	}
	return time.Time{}, false
}
