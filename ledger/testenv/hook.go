package testenv

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Hook is a webhook that answers as it is told and keeps what was posted: JSON of a T.
type Hook[T any] struct {
	*httptest.Server
	Posts chan Post[T] // buffered 1000
}

// Post is what was posted to a Hook.
type Post[T any] struct {
	Path, ID, ContentType string // ID: its Idempotency-Key
	Body                  T
	Status                int // that was answered
}

// NewHook answers the n-th post, from 0, with the status that answer gives.
func NewHook[T any](t testing.TB, answer func(n int, r *http.Request) int) *Hook[T] {
	t.Helper()
	h := &Hook[T]{Posts: make(chan Post[T], 1000)}
	var mu sync.Mutex
	n := 0
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		p := Post[T]{Path: r.URL.Path, ID: r.Header.Get("Idempotency-Key"),
			ContentType: r.Header.Get("Content-Type")}
		if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &p.Body) != nil {
			t.Errorf("%s %s: %s, %v", r.Method, r.URL, body, err)
		}
		mu.Lock()
		number := n
		n++
		mu.Unlock()
		p.Status = answer(number, r)
		h.Posts <- p
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(p.Status)
	}))
	t.Cleanup(h.Close)
	return h
}

// Next is the next post; the test ends where none comes in Patience.
func (h *Hook[T]) Next(t testing.TB) Post[T] {
	t.Helper()
	select {
	case p := <-h.Posts:
		return p
	case <-time.After(Patience):
		t.Fatal("nothing is posted")
		return Post[T]{}
	}
}

// Takes answers each post with 204.
func Takes(int, *http.Request) int { return http.StatusNoContent }

// Scrape reads the numbers of a metrics handler as Prometheus does.
func Scrape(t testing.TB, metrics http.Handler) string {
	t.Helper()
	out := httptest.NewRecorder()
	metrics.ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(out.Body)
	if err != nil || out.Code != http.StatusOK {
		t.Fatal(out.Code, err)
	}
	return string(body)
}
