package executor_test

import (
	"cmp"
	"encoding/json"
	goflag "flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

var (
	randomFrom = goflag.Uint64("schedule-from", 0, "the first seed of the random schedules")
	randomOf   = goflag.Int("schedules", 0, "how many random schedules; 0: a few")
	randomLine = goflag.String("schedule", "", "this schedule instead of random ones")
)

// TestRandomSchedules plays words of all kinds in an order that no one has thought of. After each
// commit the rows agree with each other and the verifier with the fold (see world.raw); what was
// folded is folded again with other batches, people who answer all that is asked bring each plan to
// its end, and nothing stands of which it says that it is undone.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	programs := triggers.NewCache(ExpressionsMax)
	if *randomLine != "" {
		playRandom(t, programs, strings.Fields(*randomLine))
		return
	}
	n := testenv.Cases(150, 3000)
	if *randomOf > 0 {
		n = *randomOf
	}
	for seed := *randomFrom; seed < *randomFrom+uint64(n); seed++ {
		random := rand.New(rand.NewPCG(seed, 1))
		words := randomWords(random)
		if seed%3 == 0 {
			words = deliveryWords(random)
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { playRandom(t, programs, words) }) {
			t.Errorf("go test ./executor -run TestRandomSchedules -schedule '%s'", strings.Join(words, " "))
		}
	}
}

// playRandom plays words as far as they make sense, whatever they lead to.
func playRandom(t *testing.T, programs *triggers.Cache, words []string) {
	s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{}, plan: "p"}
	here := effects{s: s, here: map[string][]string{}, told: map[string]bool{},
		by: map[string]string{}}
	s.worker = here.work
	for _, word := range words {
		switch {
		case word == "reopen":
			s.state = OpenWith(s.kv, "t", s, s.programs)
		case strings.HasPrefix(word, "there:"):
			action, names, _ := strings.Cut(word[len("there:"):], "=")
			if _, known := here.here[action]; !known {
				here.here[action] = strings.Split(names, ",")
			}
		case strings.HasSuffix(word, "=?"): // what is there, as someone has seen it
			here.seen(word)
		case word[0] == '@':
			before := s.now
			s.word(word)
			if s.now < before {
				t.Fatalf("%s is in the past", word)
			}
		default:
			s.word(word)
		}
	}
	s.turn()
	s.wantRefolded()
	s.finishAll()
	s.wantRefolded()
	here.wantUndone()
}

// effects are what is there of actions whose provider can be asked, by name.
type effects struct {
	s    *schedule
	here map[string][]string
	told map[string]bool   // "plan/action=name" that someone has named; see found
	by   map[string]string // "plan/action=name": the action whose undo had the name
}

// seen has the word of an operator or of an agent name what is there.
func (e *effects) seen(word string) {
	of, _, _ := strings.Cut(word, "=")
	plan, rest, ok := strings.Cut(of, "/")
	if !ok {
		plan, rest = "p", of
	}
	verb, id, _ := strings.Cut(rest, ":")
	names := e.here[plan+"/"+id]
	if verb == "own" {
		names = names[:min(1, len(names))]
	}
	results := e.s.word(of + "=" + strings.Join(names, ","))
	if verb == "effect" {
		results = append(results, e.s.word(of+"@bob="+strings.Join(names, ","))...)
	}
	a := e.s.actionOf(plan, id)
	if a == nil || a.Fixed.Forward.Late == pb.Late_LATE_REFUSED || // its blind undo is final
		a.Fixed.Forward.Class != pb.Class_CLASS_COMPENSABLE ||
		results[len(results)-1].Verdict == Refused {
		return
	}
	for _, name := range names {
		e.told[plan+"/"+id+"="+name] = true
	}
}

// work is the worker of such actions: it undoes an effect by its name, or the first, and finds
// what is there.
func (e *effects) work(c Command) *api.Reply {
	of, _, _ := strings.Cut(c.Plan+"/"+c.Action, "~")
	here, known := e.here[of]
	if !known || c.Purpose == api.PurposeVerify {
		return e.s.answer(c)
	}
	name := c.ExternalRef
	if name == "" && len(here) > 0 {
		name = here[0]
	}
	if c.Purpose == ledger.PurposeUndo {
		e.names(c, of)
		answer := e.s.answer(c)
		if answer != nil && answer.Status == api.StatusDone {
			e.here[of] = slices.DeleteFunc(here, func(x string) bool { return x == name })
		}
		return answer
	}
	found := map[string]any{"presence": "absent"}
	switch {
	case c.ExternalRef == "" && len(here) > 1:
		found = map[string]any{"presence": "duplicate", "external_ref": here}
	case slices.Contains(here, name):
		found = map[string]any{"presence": "present", "external_ref": name}
	}
	output, err := json.Marshal(found)
	if err != nil {
		e.s.t.Fatal(err)
	}
	return &api.Reply{Status: api.StatusDone, Output: output}
}

// names wants no two undos of one plan to have one name, unless what came late was owed on its own:
// it may be what was undone without a name.
func (e *effects) names(c Command, of string) {
	if c.ExternalRef == "" {
		return
	}
	_, origin, _ := strings.Cut(of, "/")
	named := of + "=" + c.ExternalRef
	late := func(a api.Action) bool {
		return a.DutyOf == origin && (a.Outcome != "in_doubt" || a.Presence != "present")
	}
	if by := cmp.Or(e.by[named], c.Action); by != c.Action && !slices.ContainsFunc(e.s.show(c.Plan).Actions, late) {
		e.s.t.Fatalf("%s undoes %s, and so does %s: %s", c.Action, named, by, e.s.outcome())
	}
	e.by[named] = c.Action
}

// found adds what the records of answers name. An answer that came to no record is not known:
// an unwind gives up what is asked, and a contract may have it ask no more.
func (e *effects) found() {
	for _, m := range e.s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			continue // what no fold reads tells nothing
		}
		for _, entry := range entries {
			k := entry.Record.GetProbeAnswered()
			of, _, _ := strings.Cut(entry.Record.GetPlan()+"/"+entry.Record.GetAction(), "~")
			for _, ref := range append(k.GetDuplicates(), k.GetExternalRef()) {
				e.told[of+"="+ref] = true
			}
		}
	}
}

// wantUndone wants nothing that a record names to stand where its plan says that all is undone.
func (e *effects) wantUndone() {
	e.found()
	for of, names := range e.here {
		plan, action, _ := strings.Cut(of, "/")
		if e.s.planOf(plan) == nil {
			continue
		}
		if end := e.s.show(plan).State; end != ledger.StateCompensated && end != ledger.StateFailed {
			continue
		}
		mine := func(a api.Action) bool { return a.Action == action || strings.HasPrefix(a.Action, action+"~") }
		if slices.ContainsFunc(e.s.show(plan).Actions, func(a api.Action) bool { return mine(a) && a.Undo == "resolved" }) {
			continue // its owner has said so
		}
		for _, name := range names {
			if e.told[of+"="+name] {
				e.s.t.Fatalf("%s=%s stands: %s", of, name, e.s.outcome())
			}
		}
	}
}

// TestWhatACommitFoundTooMuchOfIsUndone: what the probe has found at a commit, also beside the first
// effect, is found again by the unwind that comes instead, or when the owner has it asked once more; or is
// known beside what its agent calls its own.
func TestWhatACommitFoundTooMuchOfIsUndone(t *testing.T) {
	for _, line := range []string{
		"open a:probe there:p/a=x7,x8 commit turn stop turn",
		"open a:probe there:p/a=x7,x8 commit turn stop a- turn",
		"open a:probe there:p/a=x7,x8 commit turn retry:a stop turn",
		"open q/open^ q/a:probe there:q/a=x7,x8 q/commit commit turn stop turn",
		"open a:probe there:p/a=x7,x8 commit turn own:a=x7 turn stop turn",
		"open a:probe there:p/a=x7,x8 commit turn own:a=x8 stop turn",
		"open a:probe there:p/a=x7,x8 commit turn own:a= retry:a turn stop turn",
		"open a:probe b there:p/a=x7,x8 b+ commit turn own:a=x7 judge:b=block turn stop turn",
		"open q/open^ q/a:probe there:q/a=x7,x8 q/commit commit turn q/own:a=x8 turn stop turn",
		// A committed plan's forward completes after it was undone by its name: nothing more is owed of it.
		"a:probe+never b:probe+for=2h there:p/b=x7 commit:1 @18m undo turn own:b= own:a=x9",
		// What undoes a committed plan has nothing to undo of a child that was undone before, and where
		// something lands late.
		"open:continue b:probe own:b=x1 q/open^ q/b q/b- save:s q/c:blind q/c? q/commit commit judge:b=block undo:s " +
			"@30m turn undo: q/own:a=x3 turn",
		// The unwind gives up what the open plan has asked: it undoes blindly, as the contract says.
		"a there:q/a=x7,x8 q/open^a q/a<:review+blind q/a? judge:a=block",
	} {
		t.Run(line, func(t *testing.T) {
			playRandom(t, triggers.NewCache(ExpressionsMax), strings.Fields(line))
		})
	}
}

// randomMarks are those that a pair may have.
var randomMarks = []string{"probe", "askme", "blind", "refused", "may", "never", "for=2h", "until=1h",
	"approve", "review", "lateask", "dedupe", "irr", "eff", "pivot", "unchanged", "verify", "own", "own*", "held",
	"held*", "timer=5m", "later=5s", "idle=8m", "due=5m", "beside", "beside"}

// randomWords is a schedule of plan p, its child q, the child r of that, and another plan s.
func randomWords(r *rand.Rand) []string {
	one := func(list ...string) string { return list[r.IntN(len(list))] }
	some := func(list ...string) string { return marksOf(r, list) }
	plans := []string{"", "", "", "q/", "q/", "r/", "s/"}
	opened := map[string]bool{}
	opens := func(plan, under string) string {
		opened[plan] = true
		return plan + "open" + some("continue", "halt", "last", "last", "second", "accept", "2", "input",
			"input", "token") + under
	}
	words := []string{opens("", "")}
	minutes, saved, length := 0, 0, 8+r.IntN(40)
	for len(words) < length {
		plan := plans[r.IntN(len(plans))]
		if !opened[plan] {
			under := map[string]string{"q/": one("^", "^a", "^b"), "r/": one("^q.", "^q.a"), "s/": ""}[plan]
			words = append(words, opens(plan, under))
			continue
		}
		id := one("a", "b", "c", "d")
		switch n := r.IntN(26); {
		case n < 7:
			mark := some(randomMarks...)
			if strings.Contains(mark, "held") || strings.Contains(mark, "timer") {
				mark += "+for=2h"
			}
			if r.IntN(5) == 0 {
				mark = one(":staged", ":staged", ":staged+found", ":staged+kept=20m", ":staged+kept=2h+found", ":own+staged",
					":held+for=2h+staged", ":staged+beside")
			}
			words = append(words, plan+id+one("", "", "<")+mark)
			if r.IntN(3) == 0 {
				words = append(words, "there:"+one("p/", "q/")+id+"="+one("x7", "x7,x8", "x7,x8,x9"))
			}
		case n < 11:
			words = append(words, plan+id+one("+", "+", "+", "-", "?", "?"))
		case n < 14:
			words = append(words, "turn")
		case n == 14:
			minutes += 1 + r.IntN(90)
			words = append(words, fmt.Sprintf("@%dm", minutes))
		case n == 15:
			words = append(words, plan+one("fail", "commit", "commit", "commit:1", "stop", "cancel", "undo", "undo:!"+id))
		case n == 16:
			words = append(words, plan+one("effect:", "own:")+id+"="+one("?", "?", "?", "", "x9"))
		case n == 17:
			words = append(words, plan+one("resolve:", "halt:", "retry:", "skip:", "accept:", "lost:", "force:", "newkey:",
				"overwrite:")+id+one("", "", "~1", "@bob"))
		case n == 18:
			words = append(words, plan+"judge:"+id+"="+one("allow", "block", "redirect", "block*"))
		case n == 19:
			words = append(words, one("fact:", "fact:", "forget:")+id+one("=1", "=2"))
		case n == 20:
			words = append(words, id+one("", ".probe", ".verify")+"="+one("stop", "fail,done", "lost,done", "done", "present",
				"absent", "inconclusive", "duplicate"))
		case n == 21 && saved < 3:
			saved++
			words = append(words, fmt.Sprintf("%ssave:s%d", plan, saved))
		case n == 22 && saved > 0:
			words = append(words, fmt.Sprintf("%s%ss%d", plan, one("back:", "undo:"), 1+r.IntN(saved)))
		case n == 24:
			words = append(words, fmt.Sprintf("%s%s:%dm", plan, one("move", "moves"), minutes+r.IntN(60)-5))
		case n == 25:
			words = append(words, one(plan+"adopt:bob", plan+"adopt:a1", "as:bob", "as:", plan+"resume"), plan+id+one("-", "?"))
		case n == 23:
			words = append(words, one("reopen", "again", plan+"tell:"+id+"#1="+one("done", "fail", "stop")))
		}
	}
	return words
}

// deliveryWords commit a plan, and go on with what is staged in it.
func deliveryWords(r *rand.Rand) []string {
	one := func(list ...string) string { return list[r.IntN(len(list))] }
	minutes, stages := 0, func(id string) string {
		return id + one(":staged", ":staged", ":staged+found", ":staged+kept=20m", ":staged+kept=2h+found",
			":staged+kept=31s", ":own+staged")
	}
	words := []string{"open" + one("", "", ":last", ":continue", ":accept", ":second")}
	for _, id := range []string{"a", "b"}[r.IntN(3)/2:] {
		words = append(words, one(id+":for=2h", stages(id), id+":held+for=2h"), id+"+")
	}
	if r.IntN(2) == 0 {
		words = append(words, "q/open^", "q/"+stages("c"), "q/"+one("d:for=2h", stages("d")), "q/d+", "q/commit")
	}
	words = append(words, stages("c"), stages("d"))
	for _, id := range []string{"a", "b", "c", "d"} {
		words = append(words, id+"="+one("lost,done", "late", "done", "fail,done", "late,done", "lost", "stop", "done"),
			id+".probe="+one("present", "absent", "absent", "inconclusive", "duplicate", "lost"))
	}
	words = append(words, "turn", "commit")
	for range r.IntN(16) {
		plan, id := one("p~0/", "p~0/", "p~0/", "q~0/", "p~1/", ""), one("a", "b", "c", "d")
		switch r.IntN(8) {
		case 0, 1:
			words = append(words, "turn")
		case 2:
			minutes += 1 + r.IntN(40)
			words = append(words, fmt.Sprintf("@%dm", minutes))
		case 3:
			words = append(words, plan+"tell:"+id+one("#1", "#1", "#2", "#3")+"="+one("done", "done", "fail", "stop"))
		case 4, 5:
			words = append(words, plan+one("resolve:", "halt:", "retry:", "retry:", "skip:", "accept:", "lost:", "force:",
				"newkey:", "newkey!:")+id+one("", "", "", "~1", "@bob"))
		case 6:
			words = append(words, one("undo", "p~0/stop", "judge:"+id+"=block", "undo:!"+id, "fact:"+id+"=1", "erase",
				"erase:force"))
		case 7:
			words = append(words, id+one("", ".probe")+"="+one("stop", "fail,done", "lost,done", "done", "late", "present",
				"absent", "inconclusive", "duplicate", "lost"))
		}
	}
	return words
}

// marksOf are none to three marks of a list, as a word has them.
func marksOf(r *rand.Rand, list []string) string {
	var marks []string
	for range max(0, r.IntN(5)-1) {
		if m := list[r.IntN(len(list))]; !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
	}
	if len(marks) == 0 {
		return ""
	}
	return ":" + strings.Join(marks, "+")
}
