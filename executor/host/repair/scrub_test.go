package repair

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// stream has some messages; the last of them may be missing.
type stream struct {
	ledger.Store
	messages []ledger.Message
	missing  bool
	replicas int
}

func (s stream) Head(context.Context) (ledger.Head, error) {
	return ledger.Head{First: 1, Last: uint64(len(s.messages)), Replicas: s.replicas}, nil
}

func (s stream) Read(_ context.Context, from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		for _, m := range s.messages[from-1:] {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (s stream) Get(_ context.Context, sequence uint64) (ledger.Message, error) {
	if s.missing && sequence == uint64(len(s.messages)) {
		return ledger.Message{}, &ledger.Halted{Guard: "G1", Sequence: sequence, Problem: "missing"}
	}
	return s.messages[sequence-1], nil
}

// TestWhichGuardAScrubIs: a repair puts the tiles in the place of the stream. Where several servers
// have agreed on another record, it is what this host has read that is of no one.
func TestWhichGuardAScrubIs(t *testing.T) {
	t.Parallel()
	var messages []ledger.Message
	w, err := tiles.Open(t.TempDir(), "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	for sequence := range uint64(3) {
		data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", sequence), Value: []byte("1")}}}})
		if err != nil {
			t.Fatal(err)
		}
		m := ledger.Message{Sequence: sequence + 1, StampNs: 7, Subject: "saga.t.fact.src", Data: data}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(m, entries[0]); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	other := append([]ledger.Message(nil), messages...)
	other[2].StampNs++
	for _, c := range []struct {
		what    string
		records stream
		want    string
	}{
		{"the same", stream{messages: messages, replicas: 3}, ""},
		{"one server has another record", stream{messages: other, replicas: 1}, "G4"},
		{"one server lacks it", stream{messages: other, replicas: 1, missing: true}, "G4"},
		{"several have another record", stream{messages: other, replicas: 3}, "G5"},
		{"several lack it", stream{messages: other, replicas: 3, missing: true}, "G4"},
	} {
		s := NewScrubber(slog.New(slog.DiscardHandler))
		answer, err := s.Scrub(t.Context(), c.records, w.Files, false)
		if err != nil || (answer.Differs == 3) != (c.want != "") {
			t.Errorf("%s: %+v, %v", c.what, answer, err)
		}
		guard := ""
		select {
		case halted := <-s.Alarms():
			guard = halted.Guard
		default:
		}
		if guard != c.want {
			t.Errorf("%s: %q, want %q", c.what, guard, c.want)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
