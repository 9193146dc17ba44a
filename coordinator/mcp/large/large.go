// Package large puts short messages in the place of those that are too large to be held.
//
// Whoever reads a message of JSON-RPC as a whole needs a limit, and ends the connection at it. But
// a call whose answer is too large has happened, and the connection has other calls. So what such
// a message is of is read as it passes: an answer becomes an error that says what was answered, and
// a request another one, which is refused.
package large

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Method is that of a request in the place of one that is too large.
const Method = "sagenbaum/large"

// Key is the member of the data of an error that has the Answer that it is in the place of.
const Key = "sagenbaum/large"

// Answer is one that is too large.
type Answer struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`           // of the message, without the end of its line
	Failed bool   `json:"failed,omitempty"` // it is an error, or a result that says so
}

// AnswerIn is the answer that an error with such data is in the place of.
func AnswerIn(data json.RawMessage) (a Answer, ok bool) {
	var members map[string]*Answer
	if json.Unmarshal(data, &members) != nil || members[Key] == nil {
		return a, false
	}
	return *members[Key], true
}

// ErrNoMessage says that what is too large is no message of JSON-RPC either.
var ErrNoMessage = errors.New("a message that is too large is no message of JSON-RPC")

// Replaced is the message in the place of the one of which a Scanner has read all; empty: it is one
// that no one waits for. Errors: ErrNoMessage.
func (s *Scanner) Replaced() ([]byte, error) {
	type errorOf struct {
		Code    int64          `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	}
	version, known := "2.0", len(s.id) > 0 && json.Valid(s.id)
	switch {
	case !s.whole():
		return nil, ErrNoMessage
	case s.method != "" && !known:
		return nil, nil
	case s.method != "":
		return json.Marshal(map[string]any{"jsonrpc": version, "id": s.id, "method": Method,
			"params": map[string]any{"method": s.method, "bytes": s.bytes, "most": s.limit}})
	case !known || !s.result && !s.failed:
		return nil, ErrNoMessage
	}
	answer := Answer{Bytes: s.bytes, SHA256: s.sum(), Failed: s.failed || s.isError}
	out := errorOf{Code: s.code, Data: map[string]any{Key: answer}, Message: fmt.Sprintf(
		"the answer has %d bytes, and at most %d are passed on: it is left out (its SHA-256 is %s)",
		answer.Bytes, s.limit, answer.SHA256)}
	if !s.failed || out.Code == 0 {
		out.Code = -32603
	}
	return json.Marshal(map[string]any{"jsonrpc": version, "id": s.id, "error": out})
}

// Lines reads messages, each in a line, with short ones in the place of those that have more than
// limit bytes, and without the lines that skip says are none; nil: there are no others. Closing it
// closes what it reads.
func Lines(in io.ReadCloser, limit int, skip func(line []byte) bool) io.ReadCloser {
	return &lines{Closer: in, in: bufio.NewReader(in), limit: limit, skip: skip}
}

type lines struct {
	io.Closer
	in    *bufio.Reader
	limit int
	skip  func(line []byte) bool
	out   []byte
	err   error
}

// Read reads what there is of a line once all of it is there.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.out) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.out, l.err = l.next()
	}
	n := copy(p, l.out)
	l.out = l.out[n:]
	return n, nil
}

// next is the next line, with its end; the last one may be without.
func (l *lines) next() (line []byte, err error) {
	for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		var part []byte
		part, err = l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(bytes.TrimRight(line, "\r\n")) > l.limit {
			return l.long(line, err)
		}
	}
	if l.skip != nil && l.skip(line) {
		return nil, err
	}
	return line, err
}

// long is what is in the place of a line that begins so.
func (l *lines) long(line []byte, err error) ([]byte, error) {
	s := NewScanner(l.limit)
	for {
		if _, failed := s.Write(bytes.TrimRight(line, "\r\n")); failed != nil {
			return nil, failed
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		line, err = l.in.ReadSlice('\n')
	}
	if err != nil {
		return nil, err // it is cut off
	}
	out, err := s.Replaced()
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return append(out, '\n'), nil
}
