package testenv

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// KeysOnce returns a handler that passes records on to next, and fails the test for one
// with the same key twice, its logger's own attributes included. It looks at every record,
// also where next is not enabled. After the test has ended it only passes on.
func KeysOnce(t testing.TB, next slog.Handler) slog.Handler {
	check := &keysCheck{t: t}
	t.Cleanup(check.end)
	return keysOnce{next: next, check: check}
}

// keysCheck is the test that a handler fails, until it ends.
type keysCheck struct {
	mu sync.Mutex
	t  testing.TB // nil: it has ended
}

func (c *keysCheck) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = nil
}

func (c *keysCheck) twice(message, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t != nil {
		c.t.Errorf("the log line %q has the key %q twice", message, key)
	}
}

// keysOnce is a handler with the keys that its logger has; those of a group begin with its
// name.
type keysOnce struct {
	next  slog.Handler
	check *keysCheck
	keys  []string
	group string
}

// Enabled implements slog.Handler.
func (h keysOnce) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h keysOnce) Handle(ctx context.Context, r slog.Record) error {
	seen := slices.Clone(h.keys)
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains(seen, h.group+a.Key) {
			h.check.twice(r.Message, h.group+a.Key)
		}
		seen = append(seen, h.group+a.Key)
		return true
	})
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h keysOnce) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.next, h.keys = h.next.WithAttrs(attrs), slices.Clone(h.keys)
	for _, a := range attrs {
		if slices.Contains(h.keys, h.group+a.Key) {
			h.check.twice("of a logger with attributes", h.group+a.Key)
		}
		h.keys = append(h.keys, h.group+a.Key)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h keysOnce) WithGroup(name string) slog.Handler {
	h.next = h.next.WithGroup(name)
	h.group += name + "."
	return h
}
