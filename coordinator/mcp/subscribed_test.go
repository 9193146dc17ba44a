package mcp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAClientHearsOfSoManyResources(t *testing.T) {
	t.Parallel()
	s, client, other := newSubscribed(), &sdk.ServerSession{}, &sdk.ServerSession{}
	s.clients[client], s.clients[other] = true, true // no one waits for them here
	server := &Server{}
	for i := range subscriptionsMax {
		uri := fmt.Sprint("note://", i)
		if !s.room(uri, client) {
			t.Fatalf("there is no room for %d", i)
		}
		s.add(uri, server, client)
	}
	if s.room("note://more", client) || !s.room("note://7", client) || !s.room("note://more", other) {
		t.Error("it is not so many for each client, whatever it has")
	}
	s.add("note://7", server, other)
	if s.remove("note://7", client) || !s.room("note://more", client) || len(s.of(server)) != subscriptionsMax {
		t.Error("a resource that another client wants to hear of is gone")
	}
	s.leave(client)
	if got := s.of(server); len(got) != 1 || got[0] != "note://7" || len(s.of(&Server{})) > 0 {
		t.Errorf("left are %v", got)
	}
	if !s.remove("note://7", other) || len(s.all) > 0 || !s.remove("note://7", other) {
		t.Error("no client is left, and a resource is")
	}
}

// What a server does not answer keeps no one else waiting, once its time is over.
func TestAServerThatDoesNotAnswerIsAskedForAWhile(t *testing.T) {
	t.Parallel()
	s := newSubscribed()
	ctx, cancel := context.WithCancel(t.Context())
	asked, answer := make(chan struct{}), make(chan error, 1)
	go func() {
		answer <- s.ask(ctx, func(context.Context) error {
			close(asked)
			<-t.Context().Done() // as a write waits for a server that does not read
			return nil
		})
	}()
	<-asked
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.ask(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}
