package sim

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Options say which world is run, and what is left out of it. The zero value of all
// but Seed is the whole world of the seed.
type Options struct {
	Seed    uint64
	Without Faults // faults of the seed that do not happen
	Drop    uint64 // bit n: plan n is left out; up to 8 plans
	Hosts   int    // at most so many; 0: as the seed says
	Alone   bool   // no sources, supervisors, operators and foreign writers

	// Trace keeps a line for everything that happens.
	Trace bool
	// Programs are shared by the runs of one goroutine; nil: the run's own.
	Programs *triggers.Cache
	// Seen collects what has happened, over all runs of one goroutine; nil: nothing.
	Seen *Seen
	// Unaudited leaves out the second fold (package audit), to measure what it costs.
	Unaudited bool
	// Open gives a host its state store; nil: memory. Crash decides with a number
	// from 0 to 99 how much of what was not synced is lost: 0 is nothing.
	Open func() Store
}

// Store is the state store of a host. Commit ends a turn: its rows and its cursor
// become the state together.
type Store interface {
	rows.KV
	Commit()
	// Crash is a power cut: the store comes back with the state after an earlier
	// Commit. lost 0 keeps the last.
	Crash(lost int)
	// Wipe forgets everything.
	Wipe()
	Close()
}

// plansMax bounds the plans of a world that agents open at their top.
const plansMax = 8

// String is how a run is asked for: "seed=7 without=crash drop=0,2 hosts=1 alone".
func (o Options) String() string {
	parts := []string{fmt.Sprintf("seed=%d", o.Seed)}
	if o.Without != 0 {
		parts = append(parts, "without="+o.Without.String())
	}
	if o.Drop != 0 {
		parts = append(parts, "drop="+formatDrop(o.Drop))
	}
	if o.Hosts != 0 {
		parts = append(parts, fmt.Sprintf("hosts=%d", o.Hosts))
	}
	if o.Alone {
		parts = append(parts, "alone")
	}
	return strings.Join(parts, " ")
}

func formatDrop(drop uint64) string {
	var numbers []string
	for ; drop != 0; drop &= drop - 1 {
		numbers = append(numbers, strconv.Itoa(bits.TrailingZeros64(drop)))
	}
	return strings.Join(numbers, ",")
}

// ParseDrop reads the numbers of plans, 0 to 7, with commas between them. The error
// is a *ledger.Refused.
func ParseDrop(text string) (drop uint64, err error) {
	if text == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil || n >= plansMax {
			return 0, ledger.Refuse("drop", fmt.Sprintf("%q", part), "numbers of plans, 0 to 7, as in 0,2")
		}
		drop |= 1 << n
	}
	return drop, nil
}

// ParseOptions reads what String writes; what follows " # " says why. The error is a
// *ledger.Refused.
func ParseOptions(line string) (o Options, err error) {
	line, _, _ = strings.Cut(line, "#")
	seeded := false
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "seed":
			seeded = true
			o.Seed, err = strconv.ParseUint(value, 10, 64)
		case "without":
			o.Without, err = ParseFaults(value)
		case "drop":
			o.Drop, err = ParseDrop(value)
		case "hosts":
			o.Hosts, err = strconv.Atoi(value)
		case "alone":
			o.Alone = true
		default:
			err = ledger.Refuse("options", fmt.Sprintf("%q", word), "seed, without, drop, hosts or alone")
		}
		if err != nil {
			return Options{}, fmt.Errorf("cannot read %q: %w", word, err)
		}
	}
	if !seeded {
		return Options{},
			ledger.Refuse("options", "no seed", "seed=7 without=crash drop=0,2 hosts=1 alone")
	}
	return o, nil
}

// Result is what became of a run.
type Result struct {
	Seed       uint64      `json:"seed"`
	Faults     string      `json:"faults"`
	Plans      int         `json:"plans"`   // that agents opened, children among them
	Hosts      int         `json:"hosts"`   //
	Steps      int         `json:"steps"`   // events of the world
	Records    int         `json:"records"` // in the ledger
	SpanNs     int64       `json:"span_ns"` // of virtual time
	TraceHash  string      `json:"trace_hash"`
	Halted     string      `json:"halted,omitempty"` // the guard that found what the stream had lost
	Violations []Violation `json:"violations,omitempty"`
	Trace      []Line      `json:"trace,omitempty"`
}

// Violation is a broken rule.
type Violation struct {
	Rule     string `json:"rule"`               // I1 to I38, E1 to E4, L1 to L4, G1, G2
	Sequence uint64 `json:"sequence,omitempty"` // of the record at which it was seen; 0: none
	Problem  string `json:"problem"`
}

// String reads "I19 at 17: ...".
func (v Violation) String() string {
	if v.Sequence == 0 {
		return v.Rule + ": " + v.Problem
	}
	return fmt.Sprintf("%s at %d: %s", v.Rule, v.Sequence, v.Problem)
}

// Line is one line of a trace.
type Line struct {
	AtNs  int64  `json:"at_ns"` // since the world began
	Actor string `json:"actor"`
	Text  string `json:"text"`
	Fault string `json:"fault,omitempty"` // the fault that this is, or a ! and a violation's rule
}
