package door_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// blob asks about a blob over HTTP.
func (l *live) blob(method, user, plan, digest string, body io.Reader) (status int, answer []byte) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method,
		l.http.URL+"/v1/"+tenant+"/"+user+"/plans/"+plan+"/blobs/"+digest, body)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.token(user))
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	if answer, err = io.ReadAll(got.Body); err != nil {
		l.t.Fatal(err)
	}
	return got.StatusCode, answer
}

func digestOf(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// TestBlobsComeInByTheDoor, and the undo is given what came: byte for byte, also when it is stored
// twice.
func TestBlobsComeInByTheDoor(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	restored := make(chan []byte, 1)
	if err := l.work.Handle("page.restore", func(ctx context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Text blob.Ref }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, err
		}
		var value bytes.Buffer
		err := l.work.Blobs().Copy(ctx, &value, arguments.Text)
		restored <- value.Bytes()
		return worker.Result{}, err
	}); err != nil {
		t.Fatal(err)
	}
	l.publish(contract.Contract{Capability: "page.write", Class: contract.Compensable,
		Before:  &contract.Before{Call: "page.read"},
		Inverse: &contract.Inverse{Call: "page.restore", With: map[string]any{"text": "=before.text"}}})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","owner":"o","deadline":"1h"}`)
	value := bytes.Repeat([]byte("0123456789abcde\n"), 40_000)
	status, ref := l.blob(http.MethodPut, "tripper", "p", digestOf(value), bytes.NewReader(value))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, ref)
	}
	if status, again := l.blob(http.MethodPut, "tripper", "p", digestOf(value), bytes.NewReader(value)); status !=
		http.StatusOK || !bytes.Equal(again, ref) {
		t.Errorf("stored again: %d %s, want %s", status, again, ref)
	}
	var read blob.Ref
	if err := json.Unmarshal(ref, &read); err != nil || read.Bytes != int64(len(value)) || read.Type != "text/plain" {
		t.Fatalf("%s: %v", ref, err)
	}
	if status, got := l.blob(http.MethodGet, "tripper", "p", read.Digest, nil); status != http.StatusOK ||
		!bytes.Equal(got, value) {
		t.Errorf("read: %d, %d bytes", status, len(got))
	}
	l.good(l.post, "tripper", "plan.report", fmt.Sprintf(`{"plan":"p","action":"a","capability":"page.write","before":{"text":%s}}`, ref))
	l.good(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"no"}`)
	select {
	case got := <-restored:
		if !bytes.Equal(got, value) {
			t.Errorf("the undo was given %d bytes", len(got))
		}
	case <-time.After(testenv.Patience):
		t.Fatal("it is not undone")
	}
}

// TestBlobsOfOthersStayOut, and what is wrong is refused by its field.
func TestBlobsOfOthersStayOut(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","owner":"o","deadline":"1h"}`)
	value := []byte("a value")
	status, ref := l.blob(http.MethodPut, "tripper", "p", digestOf(value), bytes.NewReader(value))
	var read blob.Ref
	if err := json.Unmarshal(ref, &read); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, ref, err)
	}
	large := io.LimitReader(zeros{}, blob.Max+1)
	for _, c := range []struct {
		method, user, plan, digest string
		body                       io.Reader
		status                     int
		field                      string
	}{
		{http.MethodPut, "tripper", "p", strings.Repeat("0", 64), bytes.NewReader(value), 422, "blob.sha256"},
		{http.MethodPut, "tripper", "p", digestOf(value), large, 422, "blob.bytes"},
		{http.MethodPut, "tripper", "none", digestOf(value), bytes.NewReader(value), 422, "plan"},
		{http.MethodPut, "other", "p", digestOf(value), bytes.NewReader(value), 422, "plan"},
		{http.MethodPut, "scanner", "p", digestOf(value), bytes.NewReader(value), 403, "verb"},
		{http.MethodGet, "other", "p", read.Digest, nil, 422, "plan"},
		{http.MethodGet, "scanner", "p", read.Digest, nil, 403, "verb"},
		{http.MethodGet, "tripper", "p", strings.Repeat("0", 64), nil, 404, "blob"},
	} {
		status, answer := l.blob(c.method, c.user, c.plan, c.digest, c.body)
		var wrong struct{ Error struct{ Field, Want string } }
		if err := json.Unmarshal(answer, &wrong); err != nil || status != c.status || wrong.Error.Field != c.field ||
			wrong.Error.Want == "" {
			t.Errorf("%s by %s of %s: %d %s, want %d of %s", c.method, c.user, c.plan, status, answer, c.status, c.field)
		}
	}
	l.publish(contract.Contract{Capability: "page.write", Class: contract.Compensable,
		Before:  &contract.Before{Call: "page.read"},
		Inverse: &contract.Inverse{Call: "page.restore", With: map[string]any{"text": "=before.text"}}})
	for field, body := range map[string]string{
		"input":  `"input":{"a":{"sagenbaum/blob/v1":"p\/x","bytes":1}},"before":{}`,
		"output": `"output":{"a":{"sagenbaum\/blob/v1":"q/` + read.Digest + `","bytes":1}},"before":{}`,
		"before": `"before":` + strings.Repeat(`{"sagenbaum/blob/v1":`, 900) + "1" + strings.Repeat("}", 900),
	} {
		status, answer := l.post("tripper", "plan.report",
			`{"plan":"p","action":"a","capability":"page.write",`+body+`}`)
		wrong, _ := answer["error"].(map[string]any)
		if said, _ := wrong["field"].(string); status != 422 || said != field || wrong["want"] == "" {
			t.Errorf("%s: %d %v", field, status, answer)
		}
	}
	if r, err := http.Get(l.http.URL + "/v1/" + tenant + "/tripper/plans/p/blobs/" + read.Digest); err != nil ||
		r.StatusCode != http.StatusUnauthorized || r.Body.Close() != nil {
		t.Errorf("without a token: %v", err)
	}
}

// TestAnUploadThatBreaksOffIsNoBlob: the same again is one.
func TestAnUploadThatBreaksOffIsNoBlob(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","owner":"o","deadline":"1h"}`)
	value := bytes.Repeat([]byte("x"), 600_000)
	conn, err := net.Dial("tcp", l.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "PUT /v1/%s/tripper/plans/p/blobs/%s HTTP/1.1\r\n"+
		"Host: 127.0.0.1\r\nContent-Type: a/b\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", tenant, digestOf(value), l.token("tripper"), len(value),
		value[:300_000]); err != nil {
		t.Fatal(err)
	}
	if half, ok := conn.(*net.TCPConn); !ok || half.CloseWrite() != nil {
		t.Fatal("cannot break it off")
	}
	said, _ := io.ReadAll(conn)
	if strings.Contains(string(said), " 200 ") || strings.Contains(string(said), "sagenbaum/blob") {
		t.Errorf("%s", said)
	}
	_ = conn.Close()
	if status, ref := l.blob(http.MethodPut, "tripper", "p", digestOf(value), bytes.NewReader(value)); status != 200 {
		t.Errorf("%d %s", status, ref)
	}
}

// TestABlobThatIsSlowLosesItsPlace: one that comes byte by byte, and one that is not taken. An agent
// has some places, and no more.
func TestABlobThatIsSlowLosesItsPlace(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","owner":"o","deadline":"1h"}`)
	value := bytes.Repeat([]byte("x"), 32<<20)
	status, text := l.blob(http.MethodPut, "tripper", "p", digestOf(value), bytes.NewReader(value))
	var ref blob.Ref
	if err := json.Unmarshal(text, &ref); err != nil || status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	open := func(request string) net.Conn {
		conn, err := net.Dial("tcp", l.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, request, "Host: 127.0.0.1\r\nAuthorization: Bearer "+
			l.token("tripper")+"\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	put := "PUT /v1/default/tripper/plans/p/blobs/" + digestOf(value) + " HTTP/1.1\r\n%sContent-Type: a/b\r\n" +
		"Content-Length: 100000\r\n\r\nx"
	get := "GET /v1/default/tripper/plans/p/blobs/" + ref.Digest + " HTTP/1.1\r\n%s\r\n"
	until := func(what string, ok func() bool) {
		t.Helper()
		for by := time.Now().Add(testenv.Patience); !ok(); <-time.After(10 * time.Millisecond) {
			if time.Now().After(by) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	var waiting []net.Conn
	for range door.BlobsMax / door.Each {
		waiting = append(waiting, open(put))
	}
	until("all its places are taken", func() bool { return l.door.Blobs() == door.BlobsMax/door.Each })
	if status, text := l.blob(http.MethodGet, "tripper", "p", ref.Digest, nil); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d %.200s", status, text)
	}
	for _, conn := range waiting {
		_ = conn.Close()
	}
	until("they are free", func() bool { return l.door.Blobs() == 0 })
	l.web.Spare(300 * time.Millisecond)
	slow := open(put)
	go func() { // a byte now and then is no reason to stay
		for {
			if _, err := slow.Write([]byte("x")); err != nil {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	if said, _ := io.ReadAll(slow); !strings.Contains(string(said), " 503 ") {
		t.Errorf("an upload of 100 bytes a second: %.200s", said)
	}
	open(get) // and takes nothing
	until("it is begun", func() bool { return l.door.Blobs() == 1 })
	until("what no one takes is cut off", func() bool { return l.door.Blobs() == 0 })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
