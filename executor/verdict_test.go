package executor_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// verdictModel says what must become of a plan on whose actions a supervisor gives
// verdicts: nothing but what is known counts.
type verdictModel struct {
	now     int64 // seconds
	state   string
	failed  bool // its agent says so
	reached bool // it was committed, and a verdict came after
	actions map[string]*judged
	orphans map[string]bool // what completed, or may have, before its pair came
}

type judged struct {
	outcome string // +, -, ? or nothing
	blocked bool
	since   int64
	settled bool
	blind   bool // undone without knowing
	undone  int
}

// crossed: its effect is there or may be.
func (a *judged) crossed() bool { return a.outcome != "-" }

// fires: a blocked act that crossed or is in doubt; one that nobody heard of, after
// half a minute.
func (a *judged) fires(now int64) bool {
	return a.blocked && (a.outcome == "+" || a.outcome == "?" || a.outcome == "" && now-a.since >= 30)
}

// event takes one word of a schedule.
func (m *verdictModel) event(word string) {
	verb, rest, _ := strings.Cut(word, ":")
	id, verdict, _ := strings.Cut(rest, "=")
	a := m.actions[word[:1]]
	switch {
	case verb == "later":
		m.now += 31
	case verb == "judge":
		if a := m.actions[id]; a != nil {
			a.blocked, a.since = verdict != "allow*", m.now
			m.reached = m.reached || m.state == "committed" && a.blocked && a.crossed()
		}
	case verb == "commit":
		known := func(a *judged) bool { return a.outcome != "" && a.fires(m.now) }
		if m.state == "open" && !m.failed && len(m.orphans) == 0 &&
			!slices.ContainsFunc(slices.Collect(maps.Values(m.actions)), known) {
			m.state = "committed"
		}
	case verb == "fail":
		m.failed = m.failed || m.state == "open"
	case len(word) == 1:
		delete(m.orphans, word)
		if m.state != "committed" {
			m.actions[word] = &judged{}
		}
	case a == nil && len(word) == 2 && word[1] != '-':
		m.orphans[word[:1]] = true
	case a != nil:
		a.outcome = word[1:]
		// undone in doubt: what came late is undone, too
		if a.outcome != "-" && a.blind && (m.state != "committed" || m.reached) {
			a.undone++
			a.blind = a.outcome == "?"
		}
	}
}

// decide is what the holder does.
func (m *verdictModel) decide() {
	begins := m.failed
	for _, a := range m.actions {
		begins = begins || a.fires(m.now)
	}
	if m.state == "committed" && !m.reached || m.state == "open" && !begins {
		return
	}
	if !m.reached {
		m.state = "failed"
	}
	for _, a := range m.actions {
		if !a.settled {
			a.settled = true
			if a.crossed() {
				a.undone, a.blind = 1, a.outcome != "+"
			}
		}
		if a.undone > 0 && !m.reached {
			m.state = "compensated"
		}
	}
}

// interleave plays words in this order against the model: the holder decides after
// each, or only at the end; it is restarted after each, or never.
func interleave(t *testing.T, programs *triggers.Cache, words []string, prompt, restarts bool) string {
	s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{}, plan: "p"}
	s.worker = s.answer
	m := &verdictModel{state: "open", actions: map[string]*judged{}, orphans: map[string]bool{}}
	s.word("open:accept")
	for _, word := range append(slices.Clone(words), "later", "turn") {
		if m.event(word); word == "later" {
			s.now += 31 * second
		} else {
			s.word(word)
		}
		if prompt || word == "turn" {
			m.decide()
			s.turn()
		}
		if restarts {
			s.state = OpenWith(s.kv, "t", s, programs)
		}
	}
	count := map[string]int{}
	for _, id := range s.undone {
		count[id[:1]]++
	}
	want := map[string]int{}
	for id, a := range m.actions {
		if a.undone > 0 {
			want[id] = a.undone
		}
	}
	if state := s.show("p").State; state != m.state || !maps.Equal(count, want) {
		t.Fatalf("%v (prompt %v, restarts %v)\nis %s, undone %v; model: %s, undone %v", words, prompt, restarts, s.outcome(),
			count, m.state, want)
	}
	return m.state + fmt.Sprint(len(want))
}

// permutations calls f with every order of the words.
func permutations(words []string, f func([]string)) {
	var place func(n int)
	place = func(n int) {
		if n == len(words) {
			f(words)
		}
		for i := n; i < len(words); i++ {
			words[n], words[i] = words[i], words[n]
			place(n + 1)
			words[n], words[i] = words[i], words[n]
		}
	}
	place(0)
}

// TestVerdictsInEveryOrder: pair, verdict, outcome, the agent's end and time in every
// order, with a holder that decides at once or late, restarted after every word or
// never. Nothing is undone when the forward is known not to have crossed (S77); what
// crossed or is in doubt, and was blocked, is undone (S76), also after its commit; a block that was
// given before its commit, and had nothing to undo then, is over.
func TestVerdictsInEveryOrder(t *testing.T) {
	t.Parallel()
	programs := triggers.NewCache(100)
	seen, played := map[string]int{}, 0
	for _, verdict := range []string{"allow", "block", "redirect"} {
		for _, outcome := range []string{"a+", "a-", "a?", ""} {
			for _, end := range []string{"commit", "fail", ""} {
				words := slices.DeleteFunc([]string{"a", "judge:a=" + verdict + "*", outcome, end, "later"},
					func(word string) bool { return word == "" })
				permutations(words, func(order []string) {
					for mode := range 4 { // a plain run plays every other order in one mode, in turn
						if testenv.Long() || played%2 == 0 && mode == played/2%4 {
							seen[interleave(t, programs, order, mode&1 > 0, mode&2 > 0)]++
						}
					}
					played++
				})
			}
		}
	}
	t.Log(seen)
	some(t, seen, "committed0", "committed1", "compensated1", "failed0", "open0")
}

// TestVerdictsOnOneOfTwo: the same with a second action, in random orders.
func TestVerdictsOnOneOfTwo(t *testing.T) {
	t.Parallel()
	cases := testenv.Cases(400, 6000)
	programs := triggers.NewCache(100)
	seen := map[string]int{}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 3))
		words := []string{"a", "b", "judge:a=" + [...]string{"allow", "block", "block", "redirect"}[r.IntN(4)] + "*", "later"}
		for _, id := range []string{"a", "b"} {
			if n := r.IntN(4); n < 3 {
				words = append(words, id+"+-?"[n:n+1])
			}
		}
		if r.IntN(4) > 0 {
			words = append(words, [...]string{"commit", "fail"}[r.IntN(2)])
		}
		if r.IntN(4) == 0 {
			words = append(words, "judge:b=block*")
		}
		r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
		seen[interleave(t, programs, words, r.IntN(2) == 0, r.IntN(2) == 0)]++
	}
	t.Log(seen)
	some(t, seen, "committed0", "committed2", "compensated1", "compensated2", "open0")
}

// TestOnlyWhatIsStillHeldIsAllowed: an action that was undone before its forward was called, with a
// part of its plan, is not called any more, whatever its agent has missed.
func TestOnlyWhatIsStillHeldIsAllowed(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"open b:own b+ d:review+probe d.probe=absent fact:b=1 turn !judge:d=allow",
			"open: b=compensated d=skipped [b]"},
		{"open b:own b+ d:review d=late fact:b=1 turn !judge:d=allow", "unwinding: b=owed d=dispatched []"},
		{"open b:own b+ d:review fact:b=1 turn !judge:d=allow d- turn",
			"open: b=compensated d=compensated [d b]"},
		{"open b b+ d:review d=late fail turn !judge:d=allow", ""},
		// As ever: what is held, what has run, and a word against it.
		{"open d:review judge:d=allow d+", "open: d=held []"},
		{"open b:own b+ d:review judge:d=allow d+ fact:b=1 turn judge:d=allow", "open: b=compensated d=compensated [d b]"},
		{"open b:own b+ d:review fact:b=1 turn judge:d=block", ""},
		{"open d:review d? commit judge:d=allow", ""},
	} {
		s := newSchedule(t)
		s.play(c.line)
		if got := s.outcome(); c.want != "" && got != c.want {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.underHolder(ledger.StillHeldSince - 1)
	s.play("open b:own b+ d:review+probe d.probe=absent fact:b=1 turn judge:d=allow")
}

// TestWhatWasNeverAllowedIsSaid in the history of its plan, so that what goes on with it knows that
// its forward was not called: of an action that had to be allowed, whatever was said of it last.
func TestWhatWasNeverAllowedIsSaid(t *testing.T) {
	for line, want := range map[string]bool{
		"open a":                                    false, // it had not to be
		"open a judge:a=block":                      false,
		"open a:review":                             true,
		"open a:review judge:a=block":               true,
		"open a:review judge:a=redirect":            true,
		"open a:review judge:a=allow":               false,
		"open a:review judge:a=allow judge:a=block": false,
		"open a:review judge:a=block judge:a=allow": false,
	} {
		s := newSchedule(t)
		s.play(line)
		s.state.Flush()
		history := view.NewReader(s.kv, "t", s).History("a1", api.HistoryQuery{Plan: "p"})
		if len(history.Actions) != 1 || history.Actions[0].NeverAllowed != want {
			t.Errorf("%s: %+v", line, history.Actions)
		}
	}
}
