package triggers

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// sort puts string keys first. Keys are distinct, so that the order is total.
func (o *object) sort() {
	type member struct{ key, value ref.Val }
	members := make([]member, len(o.keys))
	for i := range o.keys {
		members[i] = member{o.keys[i], o.values[i]}
	}
	slices.SortFunc(members, func(a, b member) int {
		left, leftText := a.key.(types.String)
		right, rightText := b.key.(types.String)
		switch {
		case leftText && rightText:
			return strings.Compare(string(left), string(right))
		case leftText:
			return -1
		case rightText:
			return 1
		}
		if c := strings.Compare(a.key.Type().TypeName(), b.key.Type().TypeName()); c != 0 {
			return c
		}
		return strings.Compare(keyText(a.key), keyText(b.key))
	})
	for i, m := range members {
		o.keys[i], o.values[i] = m.key, m.value
	}
}

// keyText orders keys of one type: no two have the same.
func keyText(key ref.Val) string {
	if n, ok := key.(number); ok {
		return n.value.String() + " " + n.text
	}
	return fmt.Sprint(key.Value())
}

// Same reports whether two values of JSON are one value, in whatever order of keys and spelling of
// numbers and texts.
func Same(a, b []byte) bool { return exact.Same(a, b) }

// Spelling is the one spelling of all values that are the same; false: it cannot be read.
func Spelling(value []byte) ([]byte, bool) { return exact.Canonical(value) }

// decode makes a CEL value of JSON. Integral numbers become int while an int64
// holds them; all others become a double where that says them exactly, else a number. Bytes that
// are not JSON become an error value.
func decode(raw []byte) ref.Val { return decodeWith(decoder{data: raw}, raw) }

// decodeInexact is decode as conditions of holders of before ledger.NumbersSince read: what is no
// int64 is a double.
func decodeInexact(raw []byte) ref.Val {
	return decodeWith(decoder{data: raw, inexact: true}, raw)
}

// decodeWide is decode as their bindings read: a whole number that no int64 holds is a wide.
func decodeWide(raw []byte) ref.Val {
	return decodeWith(decoder{data: raw, inexact: true, wide: true}, raw)
}

func decodeWith(d decoder, raw []byte) ref.Val {
	value := d.value(0)
	if d.space(); value == nil || d.at != len(raw) {
		return types.NewErr("the value is not JSON that can be read")
	}
	return value
}

// decoder reads one JSON value. Its methods return nil for what is not JSON.
type decoder struct {
	data    []byte
	at      int
	inexact bool
	wide    bool
}

// wide is a whole number that no int64 holds. It computes as a double, and is moved,
// shown as a string and compared with its like as it is written.
type wide struct {
	types.Double
	text string
}

// Equal compares digit by digit.
func (w wide) Equal(other ref.Val) ref.Val {
	if o, ok := other.(wide); ok {
		return types.Bool(w.text == o.text)
	}
	return w.Double.Equal(other)
}

// ConvertToType gives string() all digits.
func (w wide) ConvertToType(t ref.Type) ref.Val {
	if t == types.StringType {
		return types.String(w.text)
	}
	return w.Double.ConvertToType(t)
}

func (d *decoder) space() {
	for d.at < len(d.data) {
		switch d.data[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// next skips space and reports whether c comes, which it then consumes.
func (d *decoder) next(c byte) bool {
	d.space()
	if d.at < len(d.data) && d.data[d.at] == c {
		d.at++
		return true
	}
	return false
}

func (d *decoder) value(depth int) ref.Val {
	d.space()
	if d.at >= len(d.data) || depth > jsonMax {
		return nil
	}
	switch c := d.data[d.at]; {
	case c == '{':
		return d.object(depth + 1)
	case c == '[':
		return d.list(depth + 1)
	case c == '"':
		if s, ok := d.text(); ok {
			return types.String(s)
		}
		return nil
	case c == 't':
		return d.word("true", types.True)
	case c == 'f':
		return d.word("false", types.False)
	case c == 'n':
		return d.word("null", types.NullValue)
	default:
		return d.number()
	}
}

func (d *decoder) word(word string, value ref.Val) ref.Val {
	if !strings.HasPrefix(string(d.data[d.at:min(len(d.data), d.at+len(word))]), word) {
		return nil
	}
	d.at += len(word)
	return value
}

func (d *decoder) object(depth int) ref.Val {
	d.at++
	o := &object{}
	sorted := true
	for first := true; !d.next('}'); first = false {
		if !first && !d.next(',') {
			return nil
		}
		if d.space(); d.at >= len(d.data) || d.data[d.at] != '"' {
			return nil
		}
		name, ok := d.text()
		if !ok || !d.next(':') {
			return nil
		}
		value := d.value(depth)
		if value == nil {
			return nil
		}
		if n := len(o.keys); n > 0 && string(o.keys[n-1].(types.String)) >= name {
			sorted = false
		}
		o.keys, o.values = append(o.keys, types.String(name)), append(o.values, value)
	}
	if !sorted {
		o.dedupe()
		o.sort()
	}
	return o
}

// dedupe keeps the last of members with one name, as encoding/json does.
func (o *object) dedupe() {
	last := make(map[string]int, len(o.keys))
	for i, key := range o.keys {
		last[string(key.(types.String))] = i
	}
	n := 0
	for i, key := range o.keys {
		if last[string(key.(types.String))] == i {
			o.keys[n], o.values[n] = key, o.values[i]
			n++
		}
	}
	o.keys, o.values = o.keys[:n], o.values[:n]
}

func (d *decoder) list(depth int) ref.Val {
	d.at++
	items := []ref.Val{}
	for first := true; !d.next(']'); first = false {
		if !first && !d.next(',') {
			return nil
		}
		value := d.value(depth)
		if value == nil {
			return nil
		}
		items = append(items, value)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, items)
}

// text reads a string; d.at is at its opening quote.
func (d *decoder) text() (string, bool) {
	start := d.at
	escaped := false
	for i := start + 1; i < len(d.data); i++ {
		switch d.data[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			d.at = i + 1
			if inner := d.data[start+1 : i]; !escaped && utf8.Valid(inner) {
				return string(inner), true
			}
			var s string
			err := json.Unmarshal(d.data[start:d.at], &s)
			return s, err == nil
		}
	}
	return "", false
}

func (d *decoder) number() ref.Val {
	start, integral := d.at, true
	for d.at < len(d.data) {
		c := d.data[d.at]
		if c == '.' || c == 'e' || c == 'E' {
			integral = false
		} else if c != '-' && c != '+' && (c < '0' || c > '9') {
			break
		}
		d.at++
	}
	literal := string(d.data[start:d.at])
	if integral && literal != "-0" {
		if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return types.Int(n)
		}
	}
	if !d.inexact {
		if f, ok := plainDouble(literal); ok {
			return f
		}
		value, ok := exact.Parse(literal)
		if !ok {
			return nil
		}
		if literal == "-0" {
			return types.Double(math.Copysign(0, -1))
		}
		return numberOf(value, literal, integral)
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return nil
	}
	if d.wide && integral && literal != "-0" {
		return wide{types.Double(f), literal}
	}
	return types.Double(f)
}

// plainDouble is numberOf of most fractions: few digits, and none of them says nothing but that the
// number is whole, as in 100.00.
func plainDouble(literal string) (types.Double, bool) {
	digits, negative := strings.CutPrefix(literal, "-")
	point := strings.IndexByte(digits, '.')
	if point < 1 || len(digits) > safeDigits+1 {
		return 0, false
	}
	mantissa, ten := 0, 1
	for i, c := range []byte(digits) {
		if i > point {
			ten *= 10
		}
		if i != point {
			if c < '0' || c > '9' {
				return 0, false
			}
			mantissa = 10*mantissa + int(c-'0')
		}
	}
	if mantissa%10 == 0 && mantissa%ten != 0 || mantissa == 0 || ten == 1 {
		return 0, false
	}
	f := float64(mantissa) / float64(ten) // both are exact, so this is the nearest
	if negative {
		f = -f
	}
	return types.Double(f), true
}

// encode appends the JSON of a CEL value, which may not exceed outputMax.
func encode(out []byte, value ref.Val) ([]byte, error) {
	if len(out) > outputMax {
		return nil, fmt.Errorf("the value has more than %d bytes", outputMax)
	}
	switch v := value.(type) {
	case types.Null:
		return append(out, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(out, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(out, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(out, uint64(v), 10), nil
	case wide:
		return append(out, v.text...), nil
	case number:
		return append(out, cmp.Or(v.text, v.value.String())...), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("%v is no JSON number", float64(v))
		}
		raw, err := json.Marshal(float64(v))
		return append(out, raw...), err
	case types.String:
		return append(out, quote(string(v))...), nil
	case types.Bytes:
		return append(out, quote(base64.StdEncoding.EncodeToString(v))...), nil
	case types.Timestamp:
		return append(out, quote(v.Time.UTC().Format(time.RFC3339Nano))...), nil
	case types.Duration:
		return append(out, quote(strconv.FormatFloat(v.Seconds(), 'f', -1, 64)+"s")...), nil
	case *types.Optional:
		if !v.HasValue() {
			return append(out, "null"...), nil
		}
		return encode(out, v.GetValue())
	case *object:
		return encodeObject(out, v)
	case traits.Lister:
		return encodeList(out, v)
	case *types.Err:
		return nil, v
	default:
		return nil, fmt.Errorf("a %s is no JSON", value.Type().TypeName())
	}
}

func encodeObject(out []byte, o *object) ([]byte, error) {
	out = append(out, '{')
	for i, key := range o.keys {
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("a key of a JSON object is a string, not %s", key.Type().TypeName())
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, quote(string(name))...), ':')
		var err error
		if out, err = encode(out, o.values[i]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func encodeList(out []byte, list traits.Lister) ([]byte, error) {
	out = append(out, '[')
	for it, first := list.Iterator(), true; it.HasNext() == types.True; first = false {
		if !first {
			out = append(out, ',')
		}
		var err error
		if out, err = encode(out, it.Next()); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// quote returns s as a JSON string, without escapes for HTML.
func quote(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return `"` + s + `"`
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic("triggers: cannot quote a string: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}
