package mcp

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A stream of events has its messages changed and nothing else, however it comes in; an event that
// the stream ends in is left out, with its id, from which a reader would go on otherwise.
func TestMessagesOfAStreamAreChanged(t *testing.T) {
	t.Parallel()
	const in = ": hello\n\nid: 1\ndata:\n\nevent: message\r\nid: 2\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n" +
		"retry: 5\n\ndata: {\"b\": 2}\n\nid: 3\ndata: {\"c\""
	const want = ": hello\n\nid: 1\n\nevent: message\nid: 2\ndata: <{\"a\":\ndata: 1}>\n\n" +
		"retry: 5\n\ndata: <{\"b\": 2}>\n\n"
	for name, way := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		got, err := io.ReadAll(&events{in: bufio.NewReaderSize(way(strings.NewReader(in)), 16),
			change: func(m json.RawMessage) json.RawMessage { return json.RawMessage("<" + string(m) + ">") }})
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// What is too large ends a stream or an answer, and is not held.
func TestAMessageThatIsTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	same := func(m json.RawMessage) json.RawMessage { return m }
	large := func() io.Reader { return io.MultiReader(strings.NewReader("data: "), endless{}) }
	if _, err := io.ReadAll(&events{in: bufio.NewReader(large()), change: same}); !errors.Is(err, errTooLarge) {
		t.Errorf("a line: %v", err)
	}
	lines := strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", bodyMax>>10))
	if _, err := io.ReadAll(&events{in: bufio.NewReader(lines), change: same}); !errors.Is(err, errTooLarge) {
		t.Errorf("an event: %v", err)
	}
	if _, err := io.ReadAll(&body{in: large(), change: same}); !errors.Is(err, errTooLarge) {
		t.Errorf("an answer: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
