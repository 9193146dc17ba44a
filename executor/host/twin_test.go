package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// twinName is the name of all hosts of named.
const twinName = "host-a"

// named gives the folder of a host its name, as on a machine that was cloned.
func (r *rig) named(folder string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "host.id"), []byte(twinName+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// otherProcess has the lease of t as a process of the same name that answers no question.
func (r *rig) otherProcess(ttl time.Duration) (*jetstream.Holders, jetstream.Lease) {
	r.t.Helper()
	holders, err := jetstream.NewHolders(
		jetstream.HoldersConfig{Conn: r.conn, TTL: ttl, Process: "other"})
	if err != nil {
		r.t.Fatal(err)
	}
	lease, ok, _, err := holders.Acquire(r.t.Context(), "t", twinName)
	if !ok || err != nil {
		r.t.Fatal(ok, err)
	}
	return holders, lease
}

func (r *rig) terms() []ledger.Entry {
	return r.records(func(rec *pb.Record) bool { return rec.GetTermStarted() != nil })
}

// TestTheSecondHostOfANameStandsBy: it does not take the tenant from the first, says where that
// one is, and takes the tenant over when it is gone.
func TestTheSecondHostOfANameStandsBy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.named("h1")
	r.named("h2")
	first, stop := r.host("h1")
	h1 := first.roster.order[0]
	r.eventually("the first holds", func() bool { return h1.board.Mode() == api.ModeHolding })
	second, _ := r.host("h2")
	h2 := second.roster.order[0]
	r.eventually("the second knows the first", func() bool {
		other := h2.lead.twin.Load()
		return other != nil && *other == first.process
	})
	r.eventually("the second stands by", func() bool { return h2.board.Mode() == api.ModeStandby })
	if n := len(r.terms()); n != 1 || h1.board.Mode() != api.ModeHolding {
		t.Errorf("%d terms, and the first is %s", n, h1.board.Mode())
	}
	stop()
	r.eventually("the second holds", func() bool { return h2.board.Mode() == api.ModeHolding })
	if n := len(r.terms()); n != 2 {
		t.Errorf("%d terms, want 2", n)
	}
}

// TestAHostThatStartsAgainTakesItsTenantAtOnce: the process before was killed, and answers nothing.
func TestAHostThatStartsAgainTakesItsTenantAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaseTTL = 30 * time.Minute // the end of the lease cannot be what it waits for
	r.otherProcess(r.leaseTTL)
	r.named("h1")
	h, _ := r.host("h1")
	a := h.roster.order[0]
	r.eventually("it holds", func() bool { return a.board.Mode() == api.ModeHolding })
}

// TestAProcessThatWasSupersededDoesNotTakeItsTenantBack, though the other one answers nothing: a
// process that slept and one that was started meanwhile would take it from each other in turn.
func TestAProcessThatWasSupersededDoesNotTakeItsTenantBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaseTTL = 30 * time.Minute
	r.named("h1")
	h, _ := r.host("h1")
	a := h.roster.order[0]
	r.eventually("it holds", func() bool { return a.board.Mode() == api.ModeHolding })
	holders, lease := r.otherProcess(r.leaseTTL)
	a.lead.askAgain()
	r.eventually("it knows who has the lease", func() bool {
		mode, problem, _ := a.board.Health()
		return mode == api.ModeStandby && problem != ""
	})
	a.lead.askAgain()
	if _, err := holders.Renew(t.Context(), lease); err != nil {
		t.Errorf("the lease of the other process: %v", err)
	}
	if n := len(r.terms()); n != 1 {
		t.Errorf("%d terms", n)
	}
}
