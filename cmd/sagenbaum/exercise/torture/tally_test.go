//go:build exercise && linux

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The named crash points: places between two acts of one process, in which a
// crash must lose nothing. Where a crash fell is told from what it left: the
// ledger, the state, the world, and what agents and worker had said.
const (
	pointNotStored    = "agent: about to register / not stored"
	pointAckLost      = "agent: stored / acknowledgement lost"
	pointAgentKilled  = "agent: killed at work"
	pointNotFolded    = "holder: stored / not folded"
	pointClaim        = "holder: claim stored / not read back"
	pointOutcome      = "holder: outcome stored / not folded"
	pointNotSent      = "holder: claim read back / command not at the worker"
	pointNotNoted     = "holder: effect undone / outcome not stored"
	pointStateLog     = "holder: folded / not in the state's log"
	pointBlock        = "ledger: before a block is written"
	pointUnsynced     = "ledger or state: written / not synced"
	pointRename       = "files: before a rename or a removal"
	pointOpening      = "files: before one is opened or written"
	pointStart        = "start: killed before it was ready"
	pointBeforeEffect = "worker: asked / no effect yet"
	pointAfterEffect  = "worker: effect undone / not answered"
)

var points = []string{
	pointNotStored, pointAckLost, pointAgentKilled, pointNotFolded, pointClaim, pointOutcome, pointNotSent,
	pointNotNoted, pointStateLog,
	pointBlock, pointUnsynced, pointRename, pointOpening, pointStart, pointBeforeEffect, pointAfterEffect,
}

// tally is what a torture has counted.
type tally struct {
	long                       bool
	cycles, acks, plans, git   int
	lost, wrong, double        int
	again, undone, late, looks int
	landed                     int // forwards that happened after their caller had hung up
	found                      int // of these, such as a probe has found
	dutiesNow, duties          int // undos owed and made once more, as the ledger says
	digests, unreadable        int
	flips                      map[string]int // what became of a flipped bit
	damages                    map[string]int // what became of a damaged state
	kinds, points              map[string]int
	ready, working             []time.Duration
}

func newTally() *tally {
	return &tally{flips: map[string]int{}, damages: map[string]int{}, kinds: map[string]int{}, points: map[string]int{}}
}

// name counts the crash points at which a server died: messages are those that
// came behind the place that was followed before, of which those that are younger
// than the death came later.
func (c *tally) name(d *death, before uint64, messages []ledger.Message, f *refolded, world *outside) {
	last := before
	hit := map[string]bool{}
	here := map[string]bool{} // pairs that the dead server had stored
	for _, m := range messages {
		if m.StampNs > d.marked.UnixNano() {
			break
		}
		last = m.Sequence
		entries, err := ledger.Decode(tortureTenant, m)
		if err != nil {
			return // the fold says so
		}
		for _, e := range entries {
			if _, pair := e.Record.GetKind().(*pb.Record_CompensationRegistered); pair {
				here[e.Record.Plan+"/"+e.Record.Action] = true
			}
			if m.Sequence > d.at && d.at > 0 {
				hit[pointOf(e.Record)] = true
			}
		}
	}
	for action := range here {
		hit[pointAckLost] = hit[pointAckLost] || !d.said.acked[action]
	}
	for action := range d.said.wanted {
		hit[pointNotStored] = hit[pointNotStored] || !d.said.acked[action] && !here[action] && f.actions[action]
	}
	for action, at := range f.dispatched {
		done := f.done[action]
		switch {
		case at > last || done != 0 && done <= last:
		case d.said.undid[action]:
			hit[pointNotNoted] = true
		case at <= d.at && !d.said.asked[action]:
			hit[pointNotSent] = true
		}
	}
	for point := range hit {
		c.points[point]++
	}
}

// pointOf is the crash point of a record that was stored and not folded.
func pointOf(r *pb.Record) string {
	switch r.GetKind().(type) {
	case *pb.Record_LeaseFired, *pb.Record_UnwindStarted, *pb.Record_CompensationDispatched, *pb.Record_TermStarted:
		return pointClaim
	case *pb.Record_CompensationSucceeded:
		return pointOutcome
	default:
		return pointNotFolded
	}
}

// missed lists the crash points that were never hit.
func (c *tally) missed() (missed []string) {
	for _, point := range points {
		if c.points[point] == 0 {
			missed = append(missed, point)
		}
	}
	return missed
}

// table is the closing table.
func (c *tally) table() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	counts := func(m map[string]int) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, fmt.Sprintf("%s %d", name, m[name]))
		}
		return strings.Join(all, ", ")
	}
	line("cycles", "%d: %s", c.cycles, counts(c.kinds))
	line("acknowledged", "%d", c.acks)
	line("plans compared", "%d, and %d of the git demo", c.plans, c.git)
	line("lost", "%d", c.lost)
	line("wrong states", "%d", c.wrong)
	line("unkeyed double effects",
		"%d; %d undos came again under their key, %d were owed once more for a late completion, %d forwards came "+
			"after their undo and were refused, %d happened after their caller had hung up, %d of which a probe found",
		c.double, c.undone, c.duties, c.late, c.landed, c.found)
	line("states compared", "%d by digest, %d by status; %d could not be read and were folded again", c.digests,
		c.looks, c.unreadable)
	line("start to ready", "%s", spread(c.ready))
	line("start to new acknowledgement", "%s", spread(c.working))
	if len(c.damages) > 0 {
		line("damaged states", "%s", counts(c.damages))
	}
	if len(c.flips) > 0 {
		line("flipped bits", "%s", counts(c.flips))
	}
	for _, point := range points {
		line("crash point", "%5d  %s", c.points[point], point)
	}
	return b.String()
}
