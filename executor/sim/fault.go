package sim

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Fault is one way in which the world may go wrong.
type Fault uint8

// The faults, in the order of where they strike: the network and the stream, hosts,
// agents, workers and the rest.
const (
	FaultDelay          Fault = iota // an append takes up to 12 s, longer than its writer waits
	FaultLostAppend                  // it never arrives
	FaultLostAck                     // it is stored, and the reply is lost
	FaultDoubled                     // it arrives twice
	FaultDedupe                      // the stream forgets the ids of commits
	FaultBusy                        // the stream is busy
	FaultNoRoom                      // the stream refuses for want of room
	FaultMute                        // the stream does not answer until its restart
	FaultSkew                        // the stream's clock is wrong
	FaultLostRecord                  // a stored record is gone after a restart of the stream
	FaultLostTail                    // the end of the stream is
	FaultChangedRecord               // a stored record is another one
	FaultCrash                       // a host dies and comes back
	FaultPowerCut                    // what its state store did not sync is lost with it
	FaultStateLost                   // all of its state is
	FaultPause                       // a host does not run for a while: a zombie
	FaultPartition                   // a host does not reach the stream
	FaultRivals                      // two or three hosts, and the lease lies about who holds
	FaultClockForward                // the wall clock of a host jumps ahead
	FaultClockBack                   // and back
	FaultVanish                      // an agent ends for ever in the middle of its plan
	FaultLateAgent                   // an agent goes on although its plan unwinds
	FaultForward                     // forwards fail, get no answer, or happen twice
	FaultWorkerDies                  // a worker dies, before its effect or after it
	FaultSlowWorker                  // its answer comes too late
	FaultWorking                     // it says working, and reports later
	FaultDoubledCommand              // a command comes twice, or late
	FaultNoWorker                    // no one serves a capability for a while
	FaultFailing                     // undos fail, for now or for good
	FaultForgetful                   // a provider forgets keys as its contract says
	FaultArchive                     // the ledger cannot be read back for a moment
	FaultPage                        // a hook does not take a page
	// someone writes what is no record, half a pair, or an old message again
	FaultForeign
	FaultLanding // a forward lands after its caller has given it up
	// a second process of an agent comes, and resumes the plan or does not
	FaultSecond
	// no one serves one capability for longer than contracts allow, and owners answer early
	FaultUnserved
	// a record that was folded long ago is another one: a scrub finds it
	FaultRotten
	// another worker reports an undo that it was not given, or shows a token that it has read
	FaultForged
	// an agent does not reach the server: what it appends is lost or lands later, another process
	// resumes its plan meanwhile, and it goes on afterwards
	FaultAgentCut

	faultCount
)

var faultNames = [faultCount]string{
	"delay", "lost-append", "lost-ack", "doubled", "dedupe", "busy", "no-room", "mute", "skew",
	"lost-record", "lost-tail", "changed-record",
	"crash", "power-cut", "state-lost", "pause", "partition", "rivals", "clock-forward", "clock-back",
	"vanish", "late-agent", "forward", "worker-dies", "slow-worker", "working", "doubled-command",
	"no-worker", "failing", "forgetful",
	"archive", "page", "foreign", "landing", "second", "unserved", "rotten", "forged",
	"agent-cut",
}

// String is the fault's name, as in a set.
func (f Fault) String() string { return faultNames[f] }

// Faults is a set of faults.
type Faults uint64

// AllFaults has every fault.
const AllFaults = Faults(1<<faultCount - 1)

// Of returns the set of these faults.
func Of(list ...Fault) (set Faults) {
	for _, f := range list {
		set |= 1 << f
	}
	return set
}

// Has reports whether the set has f.
func (s Faults) Has(f Fault) bool { return s&(1<<f) != 0 }

// List returns the faults of the set, in order.
func (s Faults) List() (list []Fault) {
	for f := range faultCount {
		if s.Has(f) {
			list = append(list, f)
		}
	}
	return list
}

// String is "crash,mute", or "none".
func (s Faults) String() string {
	var names []string
	for _, f := range s.List() {
		names = append(names, f.String())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// ParseFaults reads what String writes. The error is a *ledger.Refused.
func ParseFaults(text string) (set Faults, err error) {
	if text == "" || text == "none" {
		return 0, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		found := false
		for f := range faultCount {
			if faultNames[f] == name {
				set, found = set|1<<f, true
			}
		}
		if !found {
			return 0, ledger.Refuse("faults", fmt.Sprintf("%q is no fault", name),
				strings.Join(faultNames[:], ", "))
		}
	}
	return set, nil
}

// tampering are the faults that end a run: what is lost must be found.
var tampering = Of(FaultLostRecord, FaultLostTail, FaultChangedRecord, FaultRotten)

// faultsOf draws the faults of a world: of 100 seeds 80 have a random subset, 15
// none, 5 all of them.
func faultsOf(r *random) (set Faults) {
	mode := r.below(100)
	share := 0
	switch {
	case mode < 80:
		share = 10 + r.below(50)
	case mode >= 95:
		share = 100
	}
	for f := range FaultUnserved {
		often := share
		if tampering.Has(f) {
			often = share / 12
		}
		if r.percent(often) {
			set |= 1 << f
		}
	}
	later := *r // faults that came later change nothing of what seeds gave before
	if later.percent(share) {
		set |= 1 << FaultUnserved
	}
	if later.percent(share / 12) {
		set |= 1 << FaultRotten
	}
	if later.percent(share) {
		set |= 1 << FaultForged
	}
	if later.percent(share) {
		set |= 1 << FaultAgentCut
	}
	return set
}
