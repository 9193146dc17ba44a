package mcp

import (
	"context"
	"errors"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
)

// What a savepoint that is on its way hears is told, too: whoever asks waits for it.
func TestWhatASavepointOnItsWayHearsIsTold(t *testing.T) {
	t.Parallel()
	on := &tracked{marking: make(chan struct{})}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := on.tell(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it is not waited for: %v", err)
	}
	on.parts = append(on.parts, coordinator.ErrPartUndone)
	close(on.marking)
	if err := on.tell(t.Context()); !errors.Is(err, coordinator.ErrPartUndone) {
		t.Error(err)
	}
}

// A session may be told of two things at once: what another session has undone, and what a savepoint
// has heard.
func TestNewsDoNotKeepEachOtherFromBeingTold(t *testing.T) {
	t.Parallel()
	session, on := new(sdk.ServerSession), track(nil)
	on.parts = []error{errors.Join(coordinator.ErrPartUndone, errors.New("by a savepoint"))}
	g := &Gateway{}
	g.plans = &plans{g: g, current: map[*sdk.ServerSession]*tracked{session: on},
		news: map[*sdk.ServerSession]*news{session: {of: on, parts: []string{"by a session"}}}}
	err := untold(t.Context(), g, session, on)
	if err == nil || !strings.Contains(err.Error(), "by a savepoint") || !strings.Contains(err.Error(), "by a session") {
		t.Error(err)
	}
	if err := untold(t.Context(), g, session, on); err != nil {
		t.Errorf("it is told twice: %v", err)
	}
}

// A folder that a server is given as a root is not one among its arguments: that server works on
// other data.
func TestARootIsNoArgument(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	asRoot, lock := ServerConfig{Name: "a", Command: "c", Roots: []string{at}}.instance("p", nil)
	asArgument, _ := ServerConfig{Name: "a", Command: "c", Args: []string{at}}.instance("p", nil)
	without, alone := ServerConfig{Name: "a", Command: "c"}.instance("p", nil)
	if asRoot == asArgument || asRoot == without || lock != alone {
		t.Error(asRoot, asArgument, without, lock, alone)
	}
}
