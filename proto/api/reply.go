package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// CodeBadReply is the code of a reply that says nothing that is known here: the attempt failed.
const CodeBadReply = "bad_reply"

// ReadReply reads a worker's answer to c: first what it answers, key, attempt and status, and
// then the rest, field by field. Numbers are taken where a text is meant, and whole ones however
// they are written. A field that cannot be read is left out and named in unread: what a worker
// has done stays done whatever else it says. An answer to a question lives by its output, and is
// a failure without it. Output is a part of the text.
//
// Errors: a *Mismatch, as of CheckReply, for an answer to something else; any other for a text
// that is no answer. Neither they nor unread quote what may be secret.
func (c Command) ReadReply(text []byte) (r Reply, unread []*Mismatch, err error) {
	f, err := readFields(text, "reply")
	if err != nil {
		return r, nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	r.Key, r.Attempt = f.text("key"), uint32(f.whole("attempt", math.MaxUint32))
	unread = f.unread
	r.Worker = f.text("worker")
	if len(unread) > 0 {
		return r, nil, unread[0]
	}
	if err := c.CheckReply(r); err != nil {
		return r, nil, err
	}
	if r.Status = f.text("status"); r.Status == "" && f.broken {
		return r, nil, errors.New("the answer is not JSON, and what can be read has no status")
	}
	r.Code, r.Message, r.ExternalRef = f.text("code"), f.text("message"), f.text("external_ref")
	r.UntilMs = f.whole("until_ms", math.MaxInt64)
	r.WorkNs, r.SetupNs = f.whole("work_ns", math.MaxInt64), f.whole("setup_ns", math.MaxInt64)
	r.ToolNs, r.LLMNs = f.whole("tool_ns", math.MaxInt64), f.whole("llm_ns", math.MaxInt64)
	whole := false
	if r.Output, whole = f.value("output"); !whole && r.Status == StatusDone && c.isQuestion() {
		r.Status, r.Code = StatusFailed, CodeBadReply
		r.Message = "the output of the worker's answer is not JSON"
	}
	return r, f.end(), nil
}

func (c Command) isQuestion() bool {
	return c.Purpose == PurposeProbe || c.Purpose == PurposeVerify || c.Purpose == PurposeBefore
}

// fields are the members of a JSON object that may be wrong in parts.
type fields struct {
	at      string // what the object is, as in "reply"
	members []member
	broken  bool // there is more, and it cannot be told apart
	unread  []*Mismatch
}

// member is a name with its value as written, which need not be JSON.
type member struct {
	name  []byte
	value []byte
}

var errNoObject = errors.New("it does not begin as an object")

// readFields takes an object apart without a look at its values, so that one that is not JSON,
// as NaN, costs only itself. The values are parts of the text, which must not be changed from then
// on.
func readFields(text []byte, at string) (*fields, error) {
	f := &fields{at: at, members: make([]member, 0, 8)}
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("{"))
	if !ok {
		return nil, errNoObject
	}
	for rest = bytes.TrimSpace(rest); ; {
		if bytes.HasPrefix(rest, []byte("}")) {
			f.broken = len(bytes.TrimSpace(rest[1:])) > 0
			return f, nil
		}
		n := stringEnd(rest)
		name, err := rawjson.Name(rest[:n])
		if err != nil {
			break
		}
		rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest[n:]), []byte(":"))
		if n = valueEnd(rest); !ok || n == len(rest) {
			break // the value goes on, as far as can be known
		}
		value := bytes.TrimSpace(rest[:n])
		if value == nil {
			value = []byte{} // nil is a field that is not given
		}
		f.members = append(f.members, member{name, value[:len(value):len(value)]})
		rest = bytes.TrimSpace(bytes.TrimPrefix(rest[n:], []byte(",")))
	}
	f.broken = true
	return f, nil
}

// stringEnd is where the string ends that a text begins with; 0: it begins with none, or there
// is no end.
func stringEnd(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// valueEnd is where the comma or the bracket is that ends the value at the beginning of a text;
// len(text): nothing ends it.
func valueEnd(text []byte) int {
	for i, depth := 0, 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := stringEnd(text[i:])
			if n == 0 {
				return len(text)
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// refuse names a field that cannot be read.
func (f *fields) refuse(name, problem, want string) {
	f.unread = append(f.unread, &Mismatch{f.at + "." + name, problem, want})
}

// end are the fields that could not be read, and what follows the last that could.
func (f *fields) end() []*Mismatch {
	if f.broken {
		f.unread = append(f.unread, &Mismatch{f.at, "not JSON to its end", "one object"})
	}
	return f.unread
}

// raw is the value of a field as written; nil: it is not given, or cannot be read. A name in
// other letters is taken where no other one has the right ones.
func (f *fields) raw(name string) (value []byte) {
	for _, folded := range [...]bool{false, true} {
		for _, m := range f.members {
			switch {
			case string(m.name) != name && !(folded && strings.EqualFold(string(m.name), name)):
			case value != nil && !bytes.Equal(value, m.value):
				f.refuse(name, "given twice, and not the same", "one value")
				return nil
			default:
				value = m.value
			}
		}
		if value != nil {
			return value
		}
	}
	return nil
}

// value is a field that may be any JSON; false: it is not JSON, or its value is not known.
func (f *fields) value(name string) (value json.RawMessage, ok bool) {
	before := len(f.unread)
	if value = f.raw(name); value != nil && !json.Valid(value) {
		f.refuse(name, "not JSON", "JSON")
	}
	if len(f.unread) > before {
		return nil, false
	}
	return value, value != nil || !f.broken
}

// text is a field that is a text, or a number as it is written; empty: neither, or null.
func (f *fields) text(name string) (text string) {
	value := f.raw(name)
	if value == nil || string(value) == "null" {
		return ""
	}
	text, err := rawjson.Text(value)
	switch {
	case err == nil:
	case !json.Valid(value):
		f.refuse(name, "not JSON", "a text or a number")
	case value[0] == '-' || value[0] >= '0' && value[0] <= '9':
		return string(value)
	default:
		f.refuse(name, kindOf(value), "a text or a number")
	}
	return text
}

// whole is a field that is a whole number from 0 to a bound, as a number or in a text; 0: it is
// not, or not given.
func (f *fields) whole(name string, most uint64) int64 {
	value := f.raw(name)
	if value == nil || string(value) == "null" {
		return 0
	}
	digits := string(value)
	if bytes.HasPrefix(value, []byte(`"`)) {
		_ = json.Unmarshal(value, &digits) // what is no text is no number either
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil && json.Valid([]byte(digits)) {
		var float float64 // as 4.1e6
		float, err = strconv.ParseFloat(digits, 64)
		if err == nil && float == math.Trunc(float) && float >= 0 && float < 1<<63 {
			n = uint64(float)
		} else {
			err = strconv.ErrRange
		}
	}
	if err != nil || n > most {
		f.refuse(name, "not a whole number in range", fmt.Sprintf("a whole number from 0 to %d", most))
		return 0
	}
	return int64(n)
}

// kindOf says what a JSON value is that is neither a text nor a number.
func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return string(value) // true or false
	}
}
