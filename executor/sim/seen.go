package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
)

// Seen counts what has happened: a world in which nothing happens proves nothing.
// It belongs to one goroutine.
type Seen struct {
	Records map[string]int // "lease_fired effective"
	Reasons map[string]int // why records were refused or void, without names and numbers
	Faults  map[string]int // times that they struck
	Ends    map[string]int // states in which plans stood at the end
	Points  map[string]int // places at which hosts and workers died
	// of roots, with actions in doubt: waits, settled, accepts; lost: outputs that were not kept;
	// of actions in doubt of open plans: asked while open, what was found, asked again by an end;
	// failures of what was found; extra effects reported of what is committed; part: unwinds from
	// one action on; goes on: plans that are open again after one; undone for a condition:
	// committed ones
	Commits map[string]int
	// of commands that were recorded ahead: held, sent early, counted, called back
	Runs map[string]int
	// of staged acts: dropped; sent again, found, delivered, stopped, or their owner's
	Deliveries map[string]int
}

// NewSeen returns one in which nothing was seen.
func NewSeen() *Seen {
	return &Seen{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{},
		map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
}

// Add adds what another has seen.
func (s *Seen) Add(other *Seen) {
	add := func(to, from map[string]int) {
		for _, k := range slices.Sorted(maps.Keys(from)) {
			to[k] += from[k]
		}
	}
	add(s.Records, other.Records)
	add(s.Reasons, other.Reasons)
	add(s.Faults, other.Faults)
	add(s.Ends, other.Ends)
	add(s.Points, other.Points)
	add(s.Commits, other.Commits)
	add(s.Runs, other.Runs)
	add(s.Deliveries, other.Deliveries)
}

func (s *Seen) delivery(how string) {
	if s != nil {
		s.Deliveries[how]++
	}
}

func (s *Seen) run(how string) {
	if s != nil {
		s.Runs[how]++
	}
}

func (s *Seen) commit(how string) {
	if s != nil {
		s.Commits[how]++
	}
}

var verdictNames = [...]string{"effective", "repeated", "refused", "void"}

func verdictName(v executor.Verdict) string { return verdictNames[v] }

func (s *Seen) record(kind string, r executor.Result) {
	if s == nil {
		return
	}
	if kind == "" {
		kind = "none"
	}
	s.Records[kind+" "+verdictName(r.Verdict)]++
	if r.Verdict == executor.Refused || r.Verdict == executor.Void {
		s.Reasons[shorten(r.Reason)]++
	}
}

// shorten takes names and numbers out of a reason, so that those of one rule are one.
func shorten(reason string) string {
	words := strings.Fields(reason)
	for i, w := range words {
		if strings.ContainsAny(w, "0123456789\"") {
			words[i] = "#"
		}
	}
	return strings.Join(words[:min(len(words), 12)], " ")
}
