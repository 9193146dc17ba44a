package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Moment is an instant as text, in UTC.
func Moment(ns int64) string {
	if ns == 0 {
		return "–"
	}
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05 UTC")
}

// lasted is a length of time as people say it.
func lasted(ns int64) string {
	switch d := time.Duration(ns); {
	case d < 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// since is how far an instant is from now, as text; the page keeps it going.
func since(nowNs, ns int64) string {
	switch {
	case ns == 0:
		return "–"
	case ns <= nowNs:
		return rough(nowNs-ns) + " ago"
	default:
		return "in " + rough(ns-nowNs)
	}
}

// rough is a length of time in one unit, or two where that says more.
func rough(ns int64) string {
	switch d := time.Duration(ns); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d", int(d.Hours()/24))
	}
}

// thin is the space between thousands.
const thin = '\u2009'

// compact is a number with a space between thousands.
func compact(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + string(thin) + text[i:]
	}
	return text
}

func rateText(perSecond float64) string {
	switch {
	case perSecond >= 100:
		return fmt.Sprintf("%.0f", perSecond)
	case perSecond >= 1:
		return fmt.Sprintf("%.1f", perSecond)
	default:
		return fmt.Sprintf("%.2f", perSecond)
	}
}

func bytesText(n any) string {
	var f float64
	if _, err := fmt.Sscan(fmt.Sprint(n), &f); err != nil {
		return fmt.Sprint(n)
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1024 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + unit
		}
		f /= 1024
	}
	return fmt.Sprintf("%.1f TiB", f)
}

// sparkWidth and sparkHeight are the measures of the small picture of a rate.
const (
	sparkWidth  = 240
	sparkHeight = 36
)

// spark is the path of a line through values, the latest at the right.
func spark(values []float64) string {
	most := 1.0
	for _, v := range values {
		most = max(most, v)
	}
	var path strings.Builder
	for i, v := range values {
		command := "L"
		if i == 0 {
			command = "M"
		}
		at := float64(sparkWidth)
		if len(values) > 1 {
			at = float64(i) / float64(len(values)-1) * sparkWidth
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, at, sparkHeight-2-v/most*(sparkHeight-6))
	}
	return path.String()
}

// blank are characters that count as printable, and that cannot be seen.
const blank = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"

// printable makes a text safe for the eye: control characters, overrides of the writing
// direction and characters without a width become visible escapes, as the command line shows
// them. Line breaks and tabs stay as they are.
func printable(text string) string {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && r != thin &&
			(!unicode.IsPrint(r) || strings.ContainsRune(blank, r))
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case unicode.IsSpace(r):
			out.WriteByte(' ')
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	return out.String()
}

// clip cuts a text to so many bytes, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// payloadShown is how many bytes of an input or output a page shows, unless it is about that.
const payloadShown = 8 << 10

// pretty is JSON with a line for each field, as far as a page shows it.
func pretty(raw []byte) string { return clip(indented(raw), payloadShown) }

func indented(raw []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}
