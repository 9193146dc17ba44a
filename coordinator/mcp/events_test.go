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

// What is too large is not held: in the place of an answer is an error that says so, and a field
// that goes on for ever ends a stream.
func TestAMessageThatIsTooLargeIsNotHeld(t *testing.T) {
	t.Parallel()
	same := func(m json.RawMessage) json.RawMessage { return m }
	answer := `{"id":1,"result":{"x":["` + strings.Repeat("x", bodyMax) + `"]}}`
	const after = "data: {}\n\n"
	for name, text := range map[string]string{
		"a line": "id: 1\ndata: " + answer + "\n\n" + after,
		"lines":  "id: 1\r\ndata: " + strings.ReplaceAll(answer, `":`, "\":\r\ndata: ") + "\r\n\r\n" + after,
	} {
		got, err := io.ReadAll(&events{in: bufio.NewReader(strings.NewReader(text)), change: same})
		if said := string(got); err != nil || len(said) > 1<<10 || !strings.HasPrefix(said, "id: 1\ndata: {") ||
			!strings.Contains(said, `"id":1`) || !strings.Contains(said, "is left out") || !strings.HasSuffix(said, after) {
			t.Errorf("%s: %.80q, %v", name, got, err)
		}
	}
	got, err := io.ReadAll(&body{in: strings.NewReader(answer), change: same})
	if err != nil || len(got) > 1<<10 || !strings.Contains(string(got), "is left out") {
		t.Errorf("an answer: %.80q, %v", got, err)
	}
	told := `data: {"method":"notifications/message","params":"` + strings.Repeat("x", bodyMax) + "\"}\n\n" + after
	if got, err := io.ReadAll(&events{in: bufio.NewReader(strings.NewReader(told)), change: same}); string(got) !=
		after || err != nil {
		t.Errorf("what no one waits for: %.80q, %v", got, err)
	}
	field := io.MultiReader(strings.NewReader("event: "), endless{})
	if _, err := io.ReadAll(&events{in: bufio.NewReader(field), change: same}); !errors.Is(err, errTooLarge) {
		t.Errorf("a field: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
