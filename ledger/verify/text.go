package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
)

// Text is the report for people on a file: what was looked at, what is proven, what is
// wrong, what cannot be told and why, and what it comes to. Nothing in it can steer a
// terminal.
func (r *Report) Text(file string) string {
	var b strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, Printable(fmt.Sprintf(format, a...)))
	}
	line("bundle", "%s: %s", file, holds(r))
	line("records", "%s", records(r))
	if s := r.Signed; s.Checkpoints > 0 {
		line("signed", "%d of %d records, to sequence %d%s: %s verified", s.Size, r.Size, s.Through,
			of(s.Time), count(s.Checkpoints, "checkpoint"))
		line("key", "%s", s.Key)
		for _, rotation := range s.Rotations {
			line("key", "rotated %s", rotation)
		}
	}
	for _, k := range []*Kept{r.Kept, r.Keep} {
		if k == nil || !k.Holds {
			continue
		}
		line("before",
			"the %d records of the checkpoint that was kept from before are the first of these",
			k.Size)
	}
	if r.RulesRun && r.Messages > 0 {
		line("rules", "%s", rules(r))
		line("plans", "%s; %s held", orNone(counts(r.Plans)), count(uint64(r.Held), "registration"))
	}
	repairs(r, line)
	for _, e := range r.Erased {
		gone := "its key is gone"
		if !e.Destroyed {
			gone = "nothing says yet that its key is gone"
		}
		line("erased", "plan %s at sequence %d by %s: %s; %s, so what was in %s is not proven",
			e.Plan, e.Sequence, e.Actor, e.Reason, gone, count(uint64(e.Values), "sealed value"))
	}
	if r.MoreErased > 0 {
		line("", "and %d more", r.MoreErased)
	}
	for _, l := range r.Why {
		line("why", "%s", story(l))
		for _, note := range storyNotes(l) {
			line("", "  %s", note)
		}
	}
	if r.WhyMore > 0 {
		line("", "and %d records more", r.WhyMore)
	}
	findings(r, line)
	if r.More > 0 {
		line("", "and %d more", r.More)
	}
	for _, d := range r.Doubts {
		at := ""
		if d.Sequence > 0 {
			at = fmt.Sprintf(" at sequence %d", d.Sequence)
		}
		line("untold", "%s%s: %s", d.About, at, d.Why)
	}
	if r.MoreDoubt > 0 {
		line("", "and %d more", r.MoreDoubt)
	}
	line("verdict", "%s", verdict(r))
	return b.String()
}

func holds(r *Report) string {
	switch r.Holds {
	case bundle.Whole:
		if r.Size == 0 {
			return "the ledger of tenant " + r.Tenant
		}
		return fmt.Sprintf("the ledger of tenant %s up to record %d%s", r.Tenant, r.Size,
			of(r.LastTime))
	case bundle.Since:
		return fmt.Sprintf("the ledger of tenant %s from sequence %d on", r.Tenant, r.Since)
	case bundle.Plan:
		return "plan " + r.Plan + " of tenant " + r.Tenant
	default:
		return "no bundle that can be read"
	}
}

// of reads " of 2026-11-30T02:40:00Z".
func of(time string) string {
	if time == "" {
		return ""
	}
	return " of " + time
}

func records(r *Report) string {
	where := fmt.Sprintf("%s, sequences %d to %d", count(r.Messages, "message"), r.First, r.Last)
	switch {
	case r.Messages == 0 && r.Withheld == 0:
		return "none can be read"
	case r.Withheld > 0:
		return fmt.Sprintf("%d of %d in %s; %d withheld by their hashes", r.Size-r.Withheld, r.Size,
			where, r.Withheld)
	default:
		return fmt.Sprintf("%d in %s", r.Size, where)
	}
}

func rules(r *Report) string {
	held := audit.RulesHeld()
	what := "each record was held to"
	if r.Holds == bundle.Plan {
		what = "each shown record was held to"
	}
	return fmt.Sprintf("%s %d rules%s: %s", what, held, asOf(r.Folds), counts(r.Verdicts))
}

// asOf reads " as of fold 32", or " as of folds 15 to 32".
func asOf(folds *Folds) string {
	switch {
	case folds == nil:
		return ""
	case folds.Lowest == folds.Highest:
		return fmt.Sprintf(" as of fold %d", folds.Lowest)
	default:
		return fmt.Sprintf(" as of folds %d to %d", folds.Lowest, folds.Highest)
	}
}

// counts reads "4 committed, 3 compensated".
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(parts, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func count(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// place reads "I21 at sequence 10", or "I2 in sequences 3 to 9".
func place(f Finding) string {
	rule := f.Rule
	if rule == RuleFormat {
		rule = "the format"
	}
	if f.Through > f.Sequence {
		return fmt.Sprintf("%s in sequences %d to %d", rule, f.Sequence, f.Through)
	}
	return fmt.Sprintf("%s at sequence %d", rule, f.Sequence)
}

// finding reads "I21 at sequence 10 (10.2-9f86d081), plan p, action a".
func finding(f Finding) string {
	text := strings.TrimPrefix(place(f), "the ")
	if f.Address != "" {
		text += " (" + f.Address + ")"
	}
	if f.Plan != "" {
		text += ", plan " + f.Plan
	}
	if f.Action != "" {
		text += ", action " + f.Action
	}
	return text
}

// saysOf is what the clause of a finding says, or its rule; empty: it is of the file.
func saysOf(f Finding) (id, says string) {
	for _, c := range audit.Clauses() {
		if c.ID == f.Clause {
			return c.ID, c.Says
		}
	}
	return f.Rule, audit.RuleOf(f.Rule).Sentence
}

func verdict(r *Report) string {
	switch r.Verdict {
	case Proven:
		return "PROVEN: these are the records that were stored, and each follows the rules"
	case Found:
		return fmt.Sprintf("FINDINGS: %d; the first breaks %s", uint64(len(r.Findings))+r.More,
			place(r.Findings[0]))
	}
	if slices.ContainsFunc(r.Doubts, isOfRule) {
		return "CANNOT TELL: rules may be broken, and what is listed as untold is not proven"
	}
	return "CANNOT TELL: nothing is wrong in what is here, and what is listed as untold is not proven"
}

// repairs writes what was repaired, and what became of the records of the stream before it.
func repairs(r *Report, line func(name, format string, a ...any)) {
	for _, p := range r.Repairs {
		line("repaired", "at sequence %d by %s: %s", p.Sequence, p.Actor, p.Reason)
		line("", "lost %s; carried %s; dropped %s", p.Lost, p.Carried, p.Dropped)
	}
	if r.MoreRepair > 0 {
		line("", "and %d more", r.MoreRepair)
	}
}

// findings writes what was found; what a clause says it writes once.
func findings(r *Report, line func(name, format string, a ...any)) {
	told := map[string]bool{}
	for _, f := range r.Findings {
		line("FOUND", "%s", finding(f))
		line("", "%s", f.Problem)
		if id, says := saysOf(f); says != "" && !told[id] {
			line("", "%s: %s", id, says)
			told[id] = true
		}
	}
}

// isOfRule reports whether a doubt is of a rule that may be broken.
func isOfRule(d Doubt) bool { return strings.HasPrefix(d.About, ruleDoubt) }
