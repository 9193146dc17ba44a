package api

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"
)

// A chain of causes in words, for people: the command line prints the lines of a [Why], and the
// console links what they name.

// Names says what a part of a line names.
type Names uint8

// What a part of a line may name.
const (
	NamesNothing   Names = iota
	NamesPlan            // Text is its id
	NamesAction          // Text is its id or number, of Part.Plan
	NamesLease           // Text is its name
	NamesFact            // Text is its key
	NamesRecord          // Text is its address
	NamesMoment          // Text is an instant
	NamesCondition       // Text is CEL
	NamesCut             // Text says that a cascade was cut, and that a lease waits for its owner
)

// Part is a piece of a line, and what it names.
type Part struct {
	Text  string
	Names Names
	Plan  string // of an action
}

// Line is a sentence.
type Line []Part

// String is the line as plain text.
func (l Line) String() string {
	var text strings.Builder
	for _, p := range l {
		text.WriteString(p.Text)
	}
	return text.String()
}

// Lengths of what others have written, in characters.
const (
	reasonShown = 160
	valueShown  = 80
)

// Short is a text as one line of at most n characters.
func Short(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// At is an instant (unix ns) as a line tells it.
func At(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05Z") }

func say(text string) Line       { return Line{{Text: text}} }
func (l Line) say(t string) Line { return append(l, Part{Text: t}) }
func (l Line) plan(id string) Line {
	return append(l, Part{Text: "plan "}, Part{Text: id, Names: NamesPlan})
}
func (l Line) action(id, plan string) Line {
	return append(l, Part{Text: "action "}, Part{Text: id, Names: NamesAction, Plan: plan})
}

// does names an action and, where that is known, what it does.
func (l Line) does(id, plan, capability string) Line {
	if l = l.action(id, plan); capability != "" {
		l = l.say(" (" + capability + ")")
	}
	return l
}
func (l Line) fact(key string) Line {
	return append(l, Part{Text: "fact "}, Part{Text: key, Names: NamesFact})
}
func (l Line) moment(ns int64) Line { return append(l, Part{Text: At(ns), Names: NamesMoment}) }

// record is where a record is, after what is said of it; empty: it is not known.
func (l Line) record(at string) Line {
	if at == "" {
		return l
	}
	return append(l, Part{Text: " ("}, Part{Text: at, Names: NamesRecord}, Part{Text: ")"})
}

// by names someone, and why gives a reason; both may be empty.
func (l Line) by(who string) Line {
	if who == "" {
		return l
	}
	return l.say(" by " + who)
}

func (l Line) why(reason string, most int) Line {
	if reason == "" {
		return l
	}
	return l.say(": " + Short(reason, most))
}

// lease names one of a plan, or of one of its actions.
func (l Line) lease(name, action, plan string) Line {
	l = append(l, Part{Text: "lease "}, Part{Text: name, Names: NamesLease}, Part{Text: " of "})
	if action != "" {
		l = l.action(action, plan).say(" of ")
	}
	return l.plan(plan)
}

// Before are the lines before the steps of a chain.
func (w *Why) Before() (lines []Line) {
	if w.UndoneAs != "" {
		lines = append(lines, Line{}.plan(w.Plan).say(" is undone as ").plan(w.UndoneAs))
	}
	if w.DeliveredAs != "" {
		lines = append(lines, say("what is staged in ").plan(w.Plan).say(" is delivered as ").
			plan(w.DeliveredAs))
	}
	switch {
	case w.Delivers:
		lines = append(lines, say("it delivers what is staged in the committed ").plan(w.Origin))
	case w.Origin != "":
		lines = append(lines, say("it undoes the committed ").plan(w.Origin))
	}
	switch {
	case w.Delivers:
	case len(w.Steps) == 0:
		lines = append(lines, say("no lease of it has fired"))
	case w.Omitted:
		lines = append(lines, say("more came before; these are the last 64 leases"))
	}
	return lines
}

// Step are the lines of one step of the chain: what turned the lease, that it fired or is held,
// and its condition.
func (w *Why) Step(i int) []Line {
	step := w.Steps[i]
	end := step.end(len(w.Cuts) > 0)
	turned := say("that turned ").lease(step.Lease, step.Action, step.Plan).say(" true, ")
	turned = append(turned, end...)
	condition := Line{{Text: "condition: "},
		{Text: Short(step.Condition, reasonShown), Names: NamesCondition}}
	switch step.By {
	case "fact":
		began := say("the undo of ")
		if step.Undone == "" {
			began = began.say("an action")
		} else {
			began = began.action(step.Undone, step.UndonePlan)
		}
		began = began.say(" of ").plan(step.UndonePlan).say(" asserted ")
		if step.Retracted {
			began[len(began)-1].Text = " retracted "
		}
		return []Line{began.fact(step.Key).record(step.Fact), turned, condition}
	case "part":
		before := ""
		if i > 0 {
			before = w.Steps[i-1].Plan
		}
		line := Line{}.plan(before).say(" is a part of ").plan(step.Plan).say(": ")
		return []Line{append(line.lease(step.Lease, step.Action, step.Plan).say(" fired, "), end...)}
	}
	if step.Key != "" {
		return []Line{step.read(), turned, condition}
	}
	return []Line{step.began(), turned}
}

// end says what came of a lease that turned; held: one of the plan waits for its owner.
func (s *WhyStep) end(held bool) (l Line) {
	switch {
	case s.Fired == "" && held:
		l = Line{{Text: "and is held: the cascade was cut", Names: NamesCut}}
	case s.Fired == "":
		l = say("and was held: the cascade was cut")
	case s.ToSavepoint != "":
		l = say("and the undo of its plan back to savepoint " + s.ToSavepoint + " began").record(s.Fired)
	case s.FromAction != "":
		l = say("and the undo of ").action(s.FromAction, s.Plan).say(" and of what came after it began").
			record(s.Fired)
	case s.Origin != "":
		l = say("which undoes the committed ").plan(s.Origin).record(s.Fired)
	default:
		l = say("and the undo of its plan began").record(s.Fired)
	}
	if s.Resumed != nil {
		l = append(l.say("; "), s.Resumed.line()...).say(", depth counts from 1 again")
	}
	return l
}

// read tells the last fact that the condition of the first lease read.
func (s *WhyStep) read() Line {
	l := Line{}.fact(s.Key)
	by := s.Source
	if by != "" {
		by = "source " + by
	}
	if s.Retracted {
		l = l.say(" was retracted").by(by)
	} else {
		l = l.say(" was asserted").by(by).why(s.Value, valueShown)
	}
	l = l.record(s.Fact)
	if s.TurnedNs > s.FactNs {
		l = l.say("; what lease " + s.Lease + " waits for became true at ").moment(s.TurnedNs)
	}
	return l
}

// began says what the first lease of a chain turned at.
func (s *WhyStep) began() Line {
	of := cmp.Or(s.SaidPlan, s.Plan)
	plan := Line{}.plan(of)
	switch {
	case s.Said == "failed" || s.Said == "" && s.Lease == "plan.failed":
		return s.said(plan.say(" was declared failed"))
	case s.Said == "unwind" && s.ToSavepoint != "":
		return s.said(plan.say(" was told to unwind (back to savepoint " + s.ToSavepoint + ")"))
	case s.Said == "unwind" && s.FromAction != "":
		return s.said(plan.say(" was told to undo ").does(s.FromAction, of, s.Capability).
			say(" and what came after it"))
	case s.Said == "unwind":
		return s.said(plan.say(" was told to unwind"))
	case s.Said == "late":
		return s.said(Line{}.does(s.SaidOf, of, s.Capability).say(" of ").plan(of).
			say(" completed late"))
	case s.Said == "block", s.Said == "redirect":
		return s.said(say("a verdict on ").does(cmp.Or(s.Action, s.SaidOf), of, s.Capability).
			say(" of ").plan(of).say(" was " + s.Said))
	case s.Lease == "plan.cancelled":
		return s.said(plan.say(" was cancelled"))
	case s.Lease == "plan.deadline":
		l := say("the deadline of ").plan(s.Plan).say(" passed: ").moment(s.DeadlineNs)
		if s.Said == "moved" {
			return s.said(l.say(", moved"))
		}
		return l.say(", set when it was opened").record(s.At)
	}
	l := say("what it waits for became true")
	if s.TurnedNs > 0 {
		l = l.say(" at ").moment(s.TurnedNs)
	}
	return append(l.say(": "), Part{Text: Short(s.Condition, reasonShown), Names: NamesCondition})
}

// said ends a line about someone's word.
func (s *WhyStep) said(l Line) Line {
	return l.by(s.Actor).why(s.Reason, reasonShown).record(s.At)
}

// After are the lines after the steps: whose part the plan is, what repeats, and what its owner
// has answered to leases that were cut.
func (w *Why) After() (lines []Line) {
	if n := len(w.Steps); n > 0 && w.Steps[n-1].Plan != w.Plan && w.UndoneAs == "" &&
		w.Origin == "" {
		lines = append(lines, Line{}.plan(w.Plan).say(" is a part of it, and is undone with it"))
	}
	if w.Cycle != nil {
		lines = append(lines, say(w.Cycle.String()))
	}
	for _, a := range w.Answers {
		l := Line{{Text: "lease "}, {Text: a.Lease, Names: NamesLease}}
		if a.Action != "" {
			l = l.say(" of ").action(a.Action, w.Plan)
		}
		l = append(l.say(" was cut").record(a.Cut).say(", "+a.Why+"; "), a.line()...)
		lines = append(lines, l.say(", ").moment(a.AtNs))
	}
	return lines
}

// line says "given up by ana: reason (18.0-0fd319a7)".
func (a *Word) line() Line {
	said := "given up"
	if a.Answer == "resume" {
		said = "resumed"
	}
	return say(said).by(a.By).why(a.Reason, reasonShown).record(a.At)
}
