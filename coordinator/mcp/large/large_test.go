package large_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/large"
)

const limit = 1 << 10

var much = strings.Repeat(`\"},{\\`, limit)

func read(t *testing.T, text string) (string, error) {
	t.Helper()
	out, err := io.ReadAll(large.Lines(io.NopCloser(strings.NewReader(text)), limit, nil))
	slowly, again := io.ReadAll(large.Lines(io.NopCloser(iotest.OneByteReader(strings.NewReader(text))),
		limit, nil))
	if string(slowly) != string(out) || (err == nil) != (again == nil) {
		t.Errorf("byte by byte it is %q, %v, and else %q, %v", slowly, again, out, err)
	}
	return string(out), err
}

// What is not too large is as it was, to the byte, also without an end of the last line.
func TestWhatIsNotTooLargePasses(t *testing.T) {
	full := `{"x":"` + strings.Repeat("x", limit-8) + `"}`
	for _, text := range []string{"", "\n", "{}\r\n\n{ \"a\": 1}\n", "{}", full + "\n" + full + "\r\n", "no JSON\n"} {
		if got, err := read(t, text); got != text || err != nil {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

// An answer that is too large becomes an error to the same request, which says what was answered.
func TestAnAnswerThatIsTooLargeBecomesAnErrorThatSaysSo(t *testing.T) {
	for _, c := range []struct {
		message, id string
		failed      bool
		code        int64
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"@","isError":true}]}}`, "7", false, -32603},
		{`{"result": {"isError" : false, "content":["@"]} , "id" : "a,\"b}" }`, `"a,\"b}"`, false, -32603},
		{`{"id":1,"result":{"content":["@"],"x":{"error":{"code":3}},"isError":true}}`, "1", true, -32603},
		{`{"id":1,"error":{"code":-32602,"message":"@","data":{"code":1}}}`, "1", true, -32602},
		{`{"id":1,"x":"@","result":"isError"}`, "1", false, -32603},
		{`{"id":1,"result":[{"isError":true},"@"]}`, "1", false, -32603},
		{`{"id":1,"id":2,"result":{},"@":{"id":3}}`, "2", false, -32603},
		{`{"id":1,"result":{"isError":["true"],"y":{},"x":"@"}}`, "1", false, -32603},
	} {
		message := strings.ReplaceAll(c.message, "@", much)
		got, err := read(t, "{}\n"+message+"\r\n{}\n")
		if err != nil || !strings.HasPrefix(got, "{}\n") || !strings.HasSuffix(got, "\n{}\n") || len(got) > limit {
			t.Errorf("%s: %q, %v", c.message, got, err)
			continue
		}
		var said struct {
			ID    json.RawMessage
			Error struct {
				Code    int64
				Message string
				Data    json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(strings.Split(got, "\n")[1]), &said); err != nil {
			t.Error(err)
		}
		sum := sha256.Sum256([]byte(message))
		answer, ok := large.AnswerIn(said.Error.Data)
		want := large.Answer{Bytes: int64(len(message)), SHA256: hex.EncodeToString(sum[:]), Failed: c.failed}
		if !ok || answer != want || string(said.ID) != c.id || said.Error.Code != c.code ||
			!strings.Contains(said.Error.Message, want.SHA256) {
			t.Errorf("%s is %s, %+v, want %+v", c.message, got, answer, want)
		}
	}
	if _, ok := large.AnswerIn([]byte(`{"other":{}}`)); ok {
		t.Error("another error is taken for one")
	}
}

// A request that is too large becomes one that can be refused, and what no one waits for goes.
func TestARequestThatIsTooLargeBecomesOneThatSaysSo(t *testing.T) {
	got, err := read(t, `{"id":"x","method":"tools/call","params":{"id":3,"a":"`+much+`"}}`+"\n")
	var said struct {
		ID, Method string
		Params     struct {
			Method string
			Bytes  int
		}
	}
	if bad := json.Unmarshal([]byte(got), &said); err != nil || bad != nil || said.ID != "x" ||
		said.Method != large.Method || said.Params.Method != "tools/call" || said.Params.Bytes <= len(much) {
		t.Errorf("%q, %v, %v", got, err, bad)
	}
	if got, err := read(t, `{"method":"notifications/message","params":["`+much+`"]}`+"\n{}\n"); got != "{}\n" ||
		err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// What is cut off, or no message, ends the connection.
func TestWhatIsNoMessageIsAnError(t *testing.T) {
	for _, text := range []string{`{"id":1,"result":"` + much + `"` + "\n", `["` + much + `"]` + "\n", much + "\n",
		`{"id":1,"x":"` + much + `"}` + "\n", `{"result":"` + much + `"}` + "\n"} {
		if got, err := read(t, text); got != "" || !errors.Is(err, large.ErrNoMessage) {
			t.Errorf("%.40q: %q, %v", text, got, err)
		}
	}
	if got, err := read(t, `{"id":1,"result":"`+strings.Repeat(much, 4)+`"}`+"\n"); got != "" ||
		!errors.Is(err, large.ErrEndless) {
		t.Errorf("it is read for ever: %q, %v", got, err)
	}
	if got, err := read(t, `{"id":1,"result":"`+much+`"}`); got != "" || err != nil {
		t.Errorf("cut off: %q, %v", got, err) // the end of the input says enough
	}
}

// A line that is no message is left out where its reader says so, also the last one.
func TestWhatIsSkippedIsLeftOut(t *testing.T) {
	const text = "hello\n{}\r\nhello\n\n{}\nhello"
	out, err := io.ReadAll(large.Lines(io.NopCloser(strings.NewReader(text)), limit,
		func(line []byte) bool { return strings.HasPrefix(string(line), "hello") }))
	if string(out) != "{}\r\n\n{}\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}
