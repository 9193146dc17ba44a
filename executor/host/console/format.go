package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/sagenbaum/sagenbaum/executor/host/console/markup"
)

//go:embed web
var web embed.FS

// build is a short digest of everything under web: an address of a style or script
// that has it never changes.
var build = buildOf(web)

func buildOf(files fs.FS) string {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		h.Write([]byte(name))
		h.Write(data)
		return err
	})
	if err != nil {
		panic("console: cannot read what is embedded: " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// pages are the templates, by name of the page.
type pages map[string]*markup.Set

var pageNames = []string{
	"overview", "plans", "plan", "preview", "quarantine", "obligation", "leases", "memory",
	"fact", "ledger", "record", "capabilities", "health", "tenants", "signin", "failure",
}

func parsePages() (pages, error) {
	all := pages{}
	for _, name := range pageNames {
		var texts []string
		for _, file := range []string{"page", "parts", name} {
			text, err := web.ReadFile("web/" + file + ".html")
			if err != nil {
				return nil, fmt.Errorf("cannot read the console's page %s: %w", name, err)
			}
			texts = append(texts, string(text))
		}
		set, err := markup.Parse(words, escaped, texts...)
		if err != nil {
			return nil, fmt.Errorf("cannot read the console's page %s: %w", name, err)
		}
		all[name] = set
	}
	return all, nil
}

// static serves styles and scripts, which are those of this build.
func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind := map[string]string{
		".css": "text/css; charset=utf-8",
		".js":  "text/javascript; charset=utf-8",
		".svg": "image/svg+xml",
	}[path.Ext(name)]
	data, err := web.ReadFile("web/" + name)
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	if r.PathValue("build") == build {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if _, err := w.Write(data); err != nil {
		s.log.Debug("file not sent", "file", name, "error", err)
	}
}

// words are the functions that templates may call.
var words = map[string]any{
	"add":      func(a, b int) int { return a + b },
	"bytes":    bytesText,
	"clip":     clip,
	"code":     func(text string) markup.Lines { return markup.Lines(text) },
	"compact":  compact,
	"dict":     dict,
	"href":     href,
	"json":     func(raw json.RawMessage) markup.Lines { return markup.Lines(pretty(raw)) },
	"kind":     func(kind string) string { return strings.ReplaceAll(kind, "_", " ") },
	"known":    known,
	"lasted":   lasted,
	"less":     func(n uint64) uint64 { return n - 1 },
	"moment":   moment,
	"more":     func(n uint64) uint64 { return n + 1 },
	"rate":     rateText,
	"sequence": func(address string) string { s, _, _ := strings.Cut(address, "."); return s },
	"shape":    shape,
	"since":    since,
	"spark":    spark,
	"sub":      func(a, b int64) int64 { return a - b },
	"word":     word,
	"x":        x,
}

// href is the address of a page of a tenant.
func href(tenant string, parts ...any) string {
	to := "/t/" + tenant
	for _, p := range parts {
		to += "/" + url.PathEscape(fmt.Sprint(p))
	}
	return to
}

// dict gives a part of a page several values.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
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

// printable makes a text safe for the eye: control characters, overrides of the writing
// direction and characters without a width become visible escapes, as the command
// line shows them. Package markup does so with all that a page prints.
func printable(text string) string { return escaped(text, false) }

// escaped is printable that leaves line breaks and tabs as they are, if lines is set.
func escaped(text string, lines bool) string {
	hidden := func(r rune) bool {
		if lines && (r == '\n' || r == '\t') {
			return false
		}
		const blank = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0" // printable, and not to be seen
		if r == thin {
			return false
		}
		return !unicode.IsPrint(r) || strings.ContainsRune(blank, r)
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
