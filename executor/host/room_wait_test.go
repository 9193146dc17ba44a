package host

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAHostThatWaitsForRoomGivesItsTenantsUp: one with room goes on, and answers. While all of them
// wait, no host holds them; whichever has room first takes them.
func TestAHostThatWaitsForRoomGivesItsTenantsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(done)
	first, _ := r.host("h1")
	r.eventually("h1 holds", func() bool { return r.status().Mode == api.ModeHolding })
	second, _ := r.host("h2")
	mode := func(h *Host) string { return h.roster.of("t").board.Mode() }
	r.eventually("h2 stands by", func() bool { return mode(second) == api.ModeStandby })

	stays := first.roster.of("t").lead.stays()
	first.roster.waits("no room on disk 1")
	r.eventually("h2 holds", func() bool { return mode(second) == api.ModeHolding })
	if stays() {
		t.Error("h1 sends on, although h2 holds")
	}
	if mode(first) != api.ModeDegraded {
		t.Errorf("h1 is %s", mode(first))
	}
	r.plan("p", 1, time.Millisecond)
	r.eventually("h2 undoes what is due", func() bool { return r.show("p").State == "compensated" })
	r.eventually("h2 alone answers", func() bool {
		for range 50 {
			if v := r.status(); v.Mode != api.ModeHolding || v.Holder != second.cfg.Holder {
				return false
			}
		}
		return true
	})
	second.roster.waits("no room on disk 2")
	r.eventually("both say so, and none takes it", func() bool {
		lock, err := first.holders.Current(t.Context(), "t")
		return err == nil && lock.Holder == "" && strings.HasPrefix(r.status().Problem, "no room on disk")
	})
	first.roster.waits("")
	r.eventually("h1 holds again", func() bool { return mode(first) == api.ModeHolding })
	second.roster.waits("")
	r.eventually("h2 stands by again", func() bool { return mode(second) == api.ModeStandby })
	if mode(first) != api.ModeHolding {
		t.Errorf("h1 is %s", mode(first))
	}
}

// TestNothingIsSentOfATenantThatWasGivenUp, although the loop, which waits for room, does not stop
// its dispatcher: what another host has decided since is not known here.
func TestNothingIsSentOfATenantThatWasGivenUp(t *testing.T) {
	t.Parallel()
	a, sent, _ := holdingActor(t)
	d := a.out.dispatch
	d.stays = a.lead.stays()
	d.send(turn.Sending{Command: command()})
	if len(sent.sent) != 1 {
		t.Fatalf("%d commands are sent, want 1", len(sent.sent))
	}
	a.lead.givenUp.Add(1)
	again := command()
	again.Attempt = 2
	d.send(turn.Sending{Command: again})
	if len(sent.sent) != 1 {
		t.Error("another one is sent after the tenant was given up")
	}
}
