package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// pen colours words for a terminal; without colour it returns them as they are.
type pen struct {
	color bool
}

func (p pen) in(code, text string) string {
	if !p.color || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p pen) bold(text string) string { return p.in("1", text) }
func (p pen) dim(text string) string  { return p.in("2", text) }

// stateColors are the SGR codes of the words for states, outcomes and undos.
var stateColors = map[string]string{
	ledger.StateOpen:        "36",
	ledger.StateCommitting:  "33",
	ledger.StateCommitted:   "32",
	ledger.StateUnwinding:   "33",
	ledger.StateCompensated: "32",
	ledger.StateQuarantined: "31;1",
	ledger.StateFailed:      "33",
	ledger.StateResolved:    "35",
	"dispatched":            "33",
	"waiting":               "33",
	"ready":                 "33",
	"owed":                  "33",
	"held":                  "36",
	"in doubt":              "33",
	"ok":                    "32",
	"warn":                  "33",
	"skip":                  "2",
	"exhausted":             "33",
	"FAIL":                  "31;1",
	"halted":                "31;1",
	"clock-guard":           "31;1",
	executor.ModeDegraded:   "31;1",
	executor.FactInMemory:   "32",
	executor.FactEvicted:    "36",
	executor.FactRetracted:  "35",
}

func (p pen) state(word string) string { return p.in(stateColors[word], word) }

// wantsColor is true for a terminal, unless NO_COLOR is set or TERM is dumb.
func wantsColor(w io.Writer) bool {
	if r, ok := w.(*redraw); ok {
		w = r.to
	}
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// clock prints a unix time in ns as time of day in UTC, "-" for none.
func clock(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).UTC().Format("15:04:05Z")
}

// moment prints a unix time in ns in full, in UTC, "-" for none.
func moment(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05Z")
}

// relative prints a unix time in ns as seen from now: "in 3m", "6h ago".
func relative(ns int64, now time.Time) string {
	if ns == 0 {
		return "-"
	}
	if d := time.Unix(0, ns).Sub(now); d > 0 {
		return "in " + span(d)
	}
	return span(now.Sub(time.Unix(0, ns))) + " ago"
}

// span prints a duration by its one or two largest units.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// clip shortens a text to n runes and makes it one printable line.
func clip(text string, n int) string {
	text = printable(strings.Join(strings.Fields(text), " "))
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// dash stands for an empty cell.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
