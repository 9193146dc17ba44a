package proof

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// leading is the leader of a stream whose answers may fail or differ.
type leading struct {
	messages []ledger.Message
	first    uint64
	fails    int // so many questions
	asked    int
}

func (l *leading) Head(context.Context) (ledger.Head, error) {
	return ledger.Head{First: max(l.first, 1), Last: uint64(len(l.messages))}, nil
}

func (l *leading) Get(_ context.Context, sequence uint64) (ledger.Message, error) {
	if l.asked++; l.fails > 0 {
		l.fails--
		return ledger.Message{}, errors.New("no leader")
	}
	if sequence < l.first {
		return ledger.Message{}, errors.New("the stream begins later")
	}
	if sequence > uint64(len(l.messages)) {
		return ledger.Message{}, ledger.Refuse("sequence", "after the last", "an earlier one")
	}
	return l.messages[sequence-1], nil
}

// signedElsewhere is a checkpoint of four records that is folded after two more.
type signedElsewhere struct {
	other   uint64 // sequence at which the leader has something else; 0: none
	flip    byte   // of the root that was signed
	own     bool   // this host has signed it
	leader  leading
	restart bool // before it is held against the tiles

	halted uint64 // at a sequence; 0: it is not
	log    string // has it
	asks   bool   // the leader
	blames bool   // the holder
}

// TestWhatAnotherHostHasSignedIsHeldAgainstTheTiles: where they have another root, the leader of the
// stream says who is wrong. Only a host whose tiles are is halted, when it folds the checkpoint and
// when it begins after it; one whose own record it is asks nothing.
func TestWhatAnotherHostHasSignedIsHeldAgainstTheTiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]signedElsewhere{
		"the same":                         {},
		"the leader differs":               {other: 3, flip: 1, halted: 3, asks: true, log: "another root"},
		"the leader differs, restart":      {other: 3, flip: 1, halted: 3, asks: true, restart: true},
		"no leader at first":               {other: 3, flip: 1, leader: leading{fails: 2}, halted: 3, asks: true},
		"the checkpoint is wrong":          {flip: 1, asks: true, log: "not of its records", blames: true},
		"the checkpoint is wrong, restart": {flip: 1, asks: true, restart: true, blames: true},
		"after a repair":                   {other: 4, flip: 1, leader: leading{first: 3}, halted: 4, asks: true},
		"its own":                          {flip: 1, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c signedElsewhere) run(t *testing.T) {
	t.Helper()
	var log strings.Builder
	tl, state := emptyTiles(t), executor.Open(rows.NewMemoryKV(), "t", nil)
	s := New(Config{Tenant: "t", KeysDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Times: Times{After: time.Hour, Retry: time.Millisecond}})
	s.Open(t.Context(), state, tl, &c.leader)
	t.Cleanup(s.Close)
	fold := func(m ledger.Message) {
		t.Helper()
		c.leader.messages = append(c.leader.messages, m)
		for _, e := range keep(t, tl, m) {
			result := state.Apply(e)
			s.Folded(e, result.Verdict == executor.Effective, result.Reason)
		}
		state.Flush()
	}
	fold(termOf(t, 1))
	for sequence := uint64(2); sequence <= 5; sequence++ {
		fold(factAt(t, sequence))
	}
	root, err := tiles.NewTree(tl.Files, tl.Edge.Clone()).Prover().Root(4)
	if err != nil {
		t.Fatal(err)
	}
	root[0] ^= c.flip
	if c.own {
		s.said = 4
	}
	fold(message(t, 6, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, &pb.Record{Term: 1,
		Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{Size: 4, Root: root[:]}}}))
	if c.other != 0 {
		c.leader.messages[c.other-1].StampNs++
	}
	if c.restart {
		s.Open(t.Context(), state, tl, &c.leader)
	}
	if err := s.Sign(false, nil); err != nil {
		t.Fatal(err)
	}
	if s.check.busy == c.own {
		t.Fatalf("it is held against the tiles: %v", s.check.busy)
	}
	if !c.own {
		<-s.Wake()
	}
	err = s.Take()
	var halted *ledger.Halted
	if errors.As(err, &halted); (c.halted != 0) != (err != nil) || err != nil &&
		(halted == nil || halted.Guard != "G5" || halted.Sequence != c.halted) {
		t.Errorf("%v, want a halt at %d", err, c.halted)
	}
	if asked := c.leader.asked > 0; asked != c.asks || !strings.Contains(log.String(), c.log) {
		t.Errorf("asked %v; the log has %s", asked, log.String())
	}
	if s.check.busy || s.check.said != nil {
		t.Error("it is not done")
	}
	c.wantForked(t, s, func() {
		fold(message(t, 7, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
			&pb.Record{Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h3"}}}))
	}, func() { s.Open(t.Context(), state, tl, &c.leader) })
}

// wantForked wants what was proved to be said of the holder that has signed the checkpoint, and of no
// later one, also after a restart.
func (c signedElsewhere) wantForked(t *testing.T, s *Signer, next, restart func()) {
	t.Helper()
	if blames := strings.Contains(s.Forked(), "the leader of the stream has what was folded here"); blames != c.blames {
		t.Errorf("%q is said of the holder", s.Forked())
	}
	if next(); s.Forked() != "" {
		t.Errorf("%q is said of the next holder", s.Forked())
	}
	if !c.blames {
		return
	}
	restart()
	if err := s.Sign(false, nil); err != nil {
		t.Fatal(err)
	}
	<-s.Wake()
	if err := s.Take(); err != nil || s.Forked() != "" {
		t.Errorf("after a restart, %q is said of the next holder: %v", s.Forked(), err)
	}
}

// TestAClaimIsHeldAgainstTheLeader: what the last checkpoint has is not asked for, all after it is.
func TestAClaimIsHeldAgainstTheLeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signed uint64 // records of the checkpoint, which is the sixth; 0: none
		other  uint64 // sequence at which the leader has something else; 0: none
		lacks  bool   // the leader ends before the last record
		fails  int

		asked  int // the leader is, so often
		halted uint64
		again  bool
	}{
		"the same":                {asked: 8},
		"after a checkpoint":      {signed: 4, asked: 5},
		"the leader differs":      {signed: 4, other: 7, asked: 4, halted: 7},
		"what a checkpoint has":   {signed: 4, other: 3, asked: 5}, // by whom it was signed, it was right
		"without a checkpoint":    {other: 3, asked: 3, halted: 3},
		"the leader ends earlier": {signed: 4, lacks: true, asked: 6, halted: 8},
		"no leader":               {fails: 1, asked: 1, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl, state, leader := emptyTiles(t), executor.Open(rows.NewMemoryKV(), "t", nil), leading{}
			s := New(Config{Tenant: "t", KeysDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
			s.Open(t.Context(), state, tl, &leader)
			t.Cleanup(s.Close)
			for sequence := uint64(1); sequence <= 8; sequence++ {
				m := factAt(t, sequence)
				if sequence == 6 && c.signed > 0 {
					m = signedOf(t, tl, sequence, c.signed)
				} else if sequence == 1 {
					m = termOf(t, sequence)
				}
				leader.messages = append(leader.messages, m)
				for _, e := range keep(t, tl, m) {
					state.Apply(e)
				}
				state.Flush()
			}
			if c.other != 0 {
				leader.messages[c.other-1].StampNs++
			}
			if c.lacks {
				leader.messages = leader.messages[:7]
			}
			leader.fails = c.fails
			err := s.Claims()(t.Context())
			var halted *ledger.Halted
			if errors.As(err, &halted) != (c.halted != 0) || halted != nil && halted.Sequence != c.halted ||
				errors.Is(err, errUnled) != c.again || (err == nil) != (c.halted == 0 && !c.again) {
				t.Errorf("%v", err)
			}
			if leader.asked != c.asked {
				t.Errorf("the leader is asked %d times, want %d", leader.asked, c.asked)
			}
		})
	}
}

func termOf(t *testing.T, sequence uint64) ledger.Message {
	return message(t, sequence, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
		&pb.Record{Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2"}}})
}

// signedOf is a checkpoint of the tiles as they were.
func signedOf(t *testing.T, tl *tiles.Writer, sequence, size uint64) ledger.Message {
	t.Helper()
	root, err := tiles.NewTree(tl.Files, tl.Edge.Clone()).Prover().Root(size)
	if err != nil {
		t.Fatal(err)
	}
	return message(t, sequence, ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, &pb.Record{Term: 1,
		Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{Size: size, Root: root[:]}}})
}
