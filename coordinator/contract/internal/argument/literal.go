package argument

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Text writes a normalised argument value as one CEL expression that gives
// exactly it: 10.10 stays 10.10.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return number(string(v))
	case string:
		if text, ok := strings.CutPrefix(v, "="); ok {
			return text
		}
		return Quote(v)
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = Text(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			members = append(members, Quote(name)+": "+Text(v[name]))
		}
		return "{" + strings.Join(members, ", ") + "}"
	default:
		panic(fmt.Sprintf("contract: no such value: %T", value))
	}
}

// number returns a literal that CEL gives back as it is written: plain where it
// does, json('...') where it would change the text or cannot hold it.
func number(text string) string {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text &&
		n != math.MinInt64 {
		return text
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.Contains(text, ".") &&
		!strings.ContainsAny(text, "eE") {
		if again, err := json.Marshal(f); err == nil && string(again) == text {
			return text
		}
	}
	return "json('" + text + "')"
}

// Quote writes a string as CEL and JSON both read it.
func Quote(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
