package large

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
)

// Scanner reads of a message what it is of, as it passes, and holds nothing else of it.
type Scanner struct {
	limit  int // of what is held
	digest hash.Hash
	bytes  int64

	depth   int
	quoted  bool // in a text
	escaped bool
	object  [3]bool   // whether what is open at a depth is an object
	naming  [3]bool   // the name of a member is to come
	name    [3]string // of the last member
	text    []byte    // of a name or a value, as it is written, up to textMax
	long    bool      // it has more
	ended   bool

	id      json.RawMessage
	method  string
	result  bool
	failed  bool
	isError bool
	code    int64
}

// textMax bounds what is read of a name, a method or an id.
const textMax = 512

// times the limit is how much is read: a sender may go on for ever.
const times = 16

// ErrEndless says that a message is given up.
var ErrEndless = errors.New("a message does not end")

// NewScanner is for a message of more than limit bytes, and has read nothing.
func NewScanner(limit int) *Scanner { return &Scanner{limit: limit, digest: sha256.New()} }

// Write takes the next part of the message. Errors: ErrEndless.
func (s *Scanner) Write(part []byte) (int, error) {
	s.digest.Write(part)
	if s.bytes += int64(len(part)); s.bytes > times*int64(s.limit) {
		return 0, ErrEndless
	}
	for _, b := range part {
		s.take(b)
	}
	return len(part), nil
}

func (s *Scanner) sum() string { return hex.EncodeToString(s.digest.Sum(nil)) }

// whole reports whether all of a message was read.
func (s *Scanner) whole() bool { return s.ended && s.depth == 0 && !s.quoted }

func (s *Scanner) take(b byte) {
	if s.quoted {
		s.keep(b)
		switch {
		case s.escaped:
			s.escaped = false
		case b == '\\':
			s.escaped = true
		case b == '"':
			s.quoted = false
		}
		return
	}
	switch b {
	case '"':
		s.quoted = true
		s.keep(b)
	case '{', '[':
		s.keep(b)
		s.depth++
		if s.depth < len(s.object) {
			s.object[s.depth], s.naming[s.depth] = b == '{', b == '{'
		}
		if s.shallow() {
			s.forget()
		}
	case '}', ']':
		if s.shallow() {
			s.member()
		}
		s.depth--
		s.ended = s.depth == 0
		s.long = true // a value that was no text or number
	case ':':
		if s.shallow() && s.naming[s.depth] {
			s.name[s.depth], s.naming[s.depth] = s.unquoted(), false
			s.forget()
			return
		}
		s.keep(b)
	case ',':
		if s.shallow() {
			s.member()
			s.naming[s.depth] = true
			s.forget()
		}
	case ' ', '\t', '\r', '\n':
	default:
		s.keep(b)
	}
}

// shallow reports whether a member of the message, or of a member of it, is being read.
func (s *Scanner) shallow() bool {
	return s.depth > 0 && s.depth < len(s.object) && s.object[s.depth]
}

func (s *Scanner) keep(b byte) {
	if len(s.text) >= textMax {
		s.long = true
		return
	}
	s.text = append(s.text, b)
}

func (s *Scanner) forget() { s.text, s.long = s.text[:0], false }

func (s *Scanner) unquoted() (text string) {
	if s.long || json.Unmarshal(s.text, &text) != nil {
		return ""
	}
	return text
}

// member takes a member whose value has ended.
func (s *Scanner) member() {
	if s.naming[s.depth] { // an empty object
		return
	}
	if s.depth == 1 {
		switch s.name[1] {
		case "id":
			if s.id = nil; !s.long && string(s.text) != "null" {
				s.id = append(s.id, s.text...)
			}
		case "method":
			s.method = s.unquoted()
		case "result":
			s.result = true
		case "error":
			s.failed = true
		}
		return
	}
	switch {
	case s.name[1] == "result" && s.name[2] == "isError":
		s.isError = !s.long && string(s.text) == "true"
	case s.name[1] == "error" && s.name[2] == "code" && !s.long:
		if json.Unmarshal(s.text, &s.code) != nil {
			s.code = 0
		}
	}
}
