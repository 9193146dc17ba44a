package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Pen colours words for a terminal; without colour it returns them as they are.
type Pen struct {
	Color bool
}

// In is text in a colour, an SGR parameter such as "31;1"; unchanged without colours.
func (p Pen) In(code, text string) string {
	if !p.Color || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is text in bold.
func (p Pen) Bold(text string) string { return p.In("1", text) }

// Dim is text that steps back.
func (p Pen) Dim(text string) string { return p.In("2", text) }

// StateColors are the SGR codes of the words for states, outcomes and undos.
var StateColors = map[string]string{
	ledger.StateOpen:        "36",
	ledger.StateCommitting:  "33",
	ledger.StateCommitted:   "32",
	ledger.StateUnwinding:   "33",
	ledger.StateCompensated: "32",
	ledger.StateQuarantined: "31;1",
	ledger.StateFailed:      "33",
	ledger.StateResolved:    "35",
	ledger.StateDelivering:  "33",
	ledger.StateDelivered:   "32",
	"staged":                "36",
	"dispatched":            "33",
	"waiting":               "33",
	"ready":                 "33",
	"owed":                  "33",
	"ahead":                 "33",
	"held":                  "36",
	"in doubt":              "33",
	"ok":                    "32",
	"warn":                  "33",
	"skip":                  "2",
	"exhausted":             "33",
	"FAIL":                  "31;1",
	"halted":                "31;1",
	"clock-guard":           "31;1",
	api.ModeDegraded:        "31;1",
	api.FactInMemory:        "32",
	api.FactEvicted:         "36",
	api.FactRetracted:       "35",
}

// State is the name of a state in its colour.
func (p Pen) State(word string) string { return p.In(StateColors[word], word) }

// WantsColor is true for a terminal, unless NO_COLOR is set or TERM is dumb.
func WantsColor(w io.Writer) bool {
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

// Clock prints a unix time in ns as time of day in UTC, "-" for none.
func Clock(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).UTC().Format("15:04:05Z")
}

// Moment prints a unix time in ns in full, in UTC, "-" for none.
func Moment(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return api.At(ns)
}

// Relative prints a unix time in ns as seen from now: "in 3m", "6h ago".
func Relative(ns int64, now time.Time) string {
	if ns == 0 {
		return "-"
	}
	if d := time.Unix(0, ns).Sub(now); d > 0 {
		return "in " + Span(d)
	}
	return Span(now.Sub(time.Unix(0, ns))) + " ago"
}

// Span prints a duration by its one or two largest units.
func Span(d time.Duration) string {
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

// Clip shortens a text to n runes and makes it one printable line.
func Clip(text string, n int) string {
	return api.Short(Printable(strings.Join(strings.Fields(text), " ")), n)
}

// Dash is shown for an empty cell.
func Dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// CountOf is a number with its noun, in the plural where it must be.
func CountOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CommandLine is a command as a person types it into a POSIX shell, which changes nothing of it.
func CommandLine(command string, args ...string) string {
	line := shellWord(command)
	for _, arg := range args {
		line += " " + shellWord(arg)
	}
	return line
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord is one word for a shell, in quotes where it needs them. What a terminal would not show
// is in $'...', which bash and zsh read, and POSIX since 2024.
func shellWord(word string) string {
	switch {
	case plainWord.MatchString(word):
		return word
	case word == Printable(word):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	quoted := strconv.Quote(word)
	return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
}

// Quoted is text as one value in a line, in quotes where it needs them.
func Quoted(text string) string {
	if strings.ContainsAny(text, " \"=") || text == "" {
		return fmt.Sprintf("%q", text)
	}
	return text
}
