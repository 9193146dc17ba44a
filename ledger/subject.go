package ledger

import "strings"

// Class says who may write a subject, and so which kinds of records it carries.
type Class uint8

// The subject classes of docs/architecture.md, section "Records".
const (
	ClassNone Class = iota
	ClassAgent
	ClassFact
	ClassVerdict
	ClassOperator
	ClassWorker
	ClassExecutor
)

var classNames = [...]string{"", "agent", "fact", "verdict", "operator", "worker", "executor"}

func (c Class) String() string { return classNames[c] }

// ManyPlans is in an agent's subject for the plan when one commit carries
// records of several plans of that agent (group commit).
const ManyPlans = "_"

// Source is a parsed subject. The subject carries the authority: NATS
// permissions decide who may write it, and the fold believes nothing else.
type Source struct {
	Tenant string
	Class  Class
	Name   string // agent, source, supervisor, operator or worker; empty for the executor
	Plan   string // agents: a plan ID or ManyPlans
	Term   bool   // executor: the subject of TermStarted, on which its appends are fenced
}

// Subject formats s; ParseSubject reads it back.
//
//	saga.<tenant>.agent.<agent>.<plan>    saga.<tenant>.operator.<operator>
//	saga.<tenant>.fact.<source>           saga.<tenant>.worker.<worker>
//	saga.<tenant>.verdict.<supervisor>    saga.<tenant>.executor[.term]
func (s Source) Subject() string {
	subject := "saga." + s.Tenant + "." + s.Class.String()
	switch {
	case s.Class == ClassExecutor && s.Term:
		return subject + ".term"
	case s.Class == ClassExecutor:
		return subject
	case s.Class == ClassAgent:
		return subject + "." + s.Name + "." + s.Plan
	default:
		return subject + "." + s.Name
	}
}

// Writer names who writes there, whatever the plan: the class, and the name in it.
func (s Source) Writer() string { return s.Class.String() + " " + s.Name }

// ParseSubject reads a subject; ok is false when it is none of the above.
func ParseSubject(subject string) (s Source, ok bool) {
	root, rest, _ := strings.Cut(subject, ".")
	tenant, rest, ok := strings.Cut(rest, ".")
	if !ok || root != "saga" || !ValidToken(tenant) {
		return Source{}, false
	}
	s.Tenant = tenant
	name, rest, more := strings.Cut(rest, ".")
	for c := ClassAgent; c <= ClassExecutor; c++ {
		if name == c.String() {
			s.Class = c
		}
	}
	first, second, two := strings.Cut(rest, ".")
	switch {
	case s.Class == ClassNone, more && !ValidToken(first), two && !ValidToken(second):
		return Source{}, false
	case s.Class == ClassExecutor && !more:
		return s, true
	case s.Class == ClassExecutor && first == "term" && !two:
		s.Term = true
		return s, true
	case s.Class == ClassAgent && two:
		s.Name, s.Plan = first, second
		return s, true
	case s.Class != ClassAgent && s.Class != ClassExecutor && more && !two:
		s.Name = first
		return s, true
	}
	return Source{}, false
}

// ValidToken reports whether name can be in a subject: 1 to TokenLenMax
// bytes of letters, digits, '-', '_'.
func ValidToken(name string) bool {
	if len(name) == 0 || len(name) > TokenLenMax {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// ValidDerived is ValidToken for the names that the fold itself makes: those of
// duties and of plans that undo a committed plan are the name they come from,
// '~' and a number; those of acts that a refused record claims are the action's, '@',
// the record's sequence, '-' and its index. No agent can take such a name.
func ValidDerived(name string) bool {
	if from, place, ok := strings.Cut(name, "@"); ok {
		sequence, index, ok := strings.Cut(place, "-")
		return ok && digits(sequence, 20) && digits(index, 10) && ValidToken(from)
	}
	if from, number, ok := strings.Cut(name, "~"); ok {
		return digits(number, 10) && ValidToken(from)
	}
	return ValidToken(name)
}

// digits reports whether text is a number of at most so many decimal digits.
func digits(text string, most int) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return 0 < len(text) && len(text) <= most
}

// TokenWanted is what a Refused says about a bad token.
const TokenWanted = "1 to 64 letters, digits, '-' or '_'"

// ValidCapability reports whether name can name a capability: tokens joined by
// dots, as in "git.branch.create", at most TokenLenMax bytes in all.
func ValidCapability(name string) bool {
	if len(name) > TokenLenMax {
		return false
	}
	for token := range strings.SplitSeq(name, ".") {
		if !ValidToken(token) {
			return false
		}
	}
	return true
}
