package executor

import (
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/executor/leases"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// The tests of this package are outside of it, because they read through package view, which
// imports it. This file is what they know of its inside.

// Names of what rows and records hold.
var (
	StateName      = stateName
	OutcomeName    = outcomeName
	UndoName       = undoName
	PresenceName   = presenceName
	VerdictName    = verdictName
	ResolutionName = resolutionName
	EndName        = endName
)

// Leases that every plan or verdict has.
const (
	LeaseFailed    = leaseFailed
	LeaseCancelled = leaseCancelled
	LeaseVerdict   = leaseVerdict
	LeaseUnheard   = leaseUnheard
)

// Bounds, and texts that records have.
const (
	AnswersMax         = answersMax
	BesideFiringMax    = besideFiringMax
	CachedLargeMax     = cachedLargeMax
	CodeUnserved       = codeUnserved
	ConcurrencyDefault = concurrencyDefault
	DuePerTurn         = leases.DuePerTurn
	EntryPrefix        = entryPrefix
	ExpressionsMax     = expressionsMax
	HeldAgain          = heldAgain
	HourNs             = hourNs
	LatestMax          = memory.LatestMax
	NoteLate           = noteLate
	NoteUndone         = noteUndone
	OrphansMax         = orphansMax
	ReadingMax         = readingMax
	ReleasedMax        = releasedMax
	ResidentStep       = memory.ResidentStep
	UndoneSuffix       = undoneSuffix
	VerdictsMax        = verdictsMax
	WatchersInline     = leases.WatchersInline
)

// Functions of values.
var (
	BackoffOf   = backoffOf
	Closed      = closed
	JoinText    = joinText
	MustJSON    = mustJSON
	PlanHasWork = func(p *Plan) bool { return p.p.hasWork() }
	Resident    = memory.Resident
	SameAddress = sameAddress
	SizeOfFact  = memory.Size
)

// Reading reads the state as it is, flushed or not.
func (s *State) Reading() *Reading { return &Reading{s} }

// Facts is what conditions read.
func (s *State) Facts() triggers.View { return s.memory.View() }

// FactRow is the row of a fact; nil: it was never asserted.
func (s *State) FactRow(key string) *rowspb.FactRow { return s.memory.Fact(key) }

// Recall reads the value of an evicted fact.
func (s *State) Recall(key string, row *rowspb.FactRow) json.RawMessage {
	return s.memory.Recall(key, row)
}

// Decoded counts the plans and actions whose rows are kept decoded, and the bytes of the large ones.
func (s *State) Decoded() (plans, actions, large int) {
	return len(s.plans), len(s.actions), s.large
}

// Number is the number of an action; 0: there is none of that id.
func (s *State) Number(plan, action string) uint32 { return s.number(plan, action) }

// Erased is where a plan was erased; nil: it was not.
func (s *State) Erased(plan string) *pb.Address { return s.erased(plan) }

// Sends reports whether commands wait to be sent.
func (s *State) Sends() bool { return len(s.commands) > 0 }

// Snoozed counts the due entries that are looked at again.
func (s *State) Snoozed() int { return s.due.Snoozed() }

// Watching counts the watchers of a fact as its row has them: those that it names, and those
// that have rows of their own.
func (s *State) Watching(key string) (few int, many uint64) {
	return s.watchers.Count(key)
}

// OneNode reports whether a node is all that watches a fact.
func (s *State) OneNode(key string) bool {
	list := s.watchers.Of(key)
	return len(list) == 1 && list[0].IsNode()
}

// KeepOnly bounds the facts and the watchers that are remembered.
func (s *State) KeepOnly(n int) {
	s.watchers.KeepOnly(n)
	s.memory.KeepOnly(n)
}

// Forget drops the decoded rows, as a Flush does above its bounds.
func (s *State) Forget() {
	s.plans, s.actions = map[string]*plan{}, map[rows.Action]*action{}
}
