package host

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

// A restart of the server depends on it: the owner of the context says by its
// cause that the server is mute, perhaps before the host has begun.
func TestRunSaysWhyItWasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		name  string
		cause error
		want  error
	}{{"mute", ErrMute, ErrMute}, {"wanted", nil, nil}} {
		h, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, c.name),
			DurableServer: r.srv.DurableID()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(c.cause)
		if err := h.Run(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: Run returned %v, want %v", c.name, err, c.want)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
