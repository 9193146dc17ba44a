package web

// A state has a shape, a colour and a word. The shape and the word each say it without the
// colour.

// marks are the known states: the shape (parts.templ draws it), the class that colours
// it, and the word for people.
var marks = map[string]struct{ shape, tone, word string }{
	// of undos
	"held":        {"ring", "held", "held"},
	"retired":     {"dot", "quiet", "retired"},
	"owed":        {"owed", "due", "owed"},
	"ahead":       {"owed", "due", "sent next"},
	"recalled":    {"slash", "quiet", "called back"},
	"ready":       {"half", "due", "ready"},
	"dispatched":  {"play", "work", "undoing"},
	"waiting":     {"clock", "work", "waits to retry"},
	"compensated": {"undone", "good", "compensated"},
	"skipped":     {"slash", "quiet", "skipped"},
	"quarantined": {"stop", "bad", "quarantined"},
	"resolved":    {"answer", "good", "resolved"},
	"exhausted":   {"stop", "bad", "attempts spent"},

	// of staged acts, and of plans that deliver them
	"staged":     {"ring", "held", "staged"},
	"delivering": {"play", "work", "delivering"},
	"delivered":  {"check", "good", "delivered"},
	"dropped":    {"slash", "quiet", "dropped"},

	// of outcomes
	"completed": {"check", "quiet", "completed"},
	"failed":    {"cross", "bad", "failed"},
	"in_doubt":  {"doubt", "doubt", "in doubt"},
	"unknown":   {"unknown", "doubt", "unknown"},

	// of plans
	"open":       {"ring", "held", "open"},
	"committing": {"clock", "work", "committing"},
	"committed":  {"sealed", "quiet", "committed"},
	"unwinding":  {"unwind", "work", "unwinding"},

	// of a verdict
	"wanted": {"clock", "work", "waits"},

	// of attempts
	"done":      {"undone", "good", "done"},
	"verifying": {"clock", "work", "being verified"},

	// of truths
	"true":  {"true", "work", "true"},
	"false": {"ring", "quiet", "false"},
	"moot":  {"slash", "quiet", "moot"},
	"fired": {"true", "bad", "fired"},
	"cut":   {"stop", "bad", "cut"},

	// of tenants
	"holding":     {"check", "good", "holding"},
	"standby":     {"ring", "quiet", "stands by"},
	"starting":    {"clock", "work", "starting"},
	"halted":      {"stop", "bad", "halted"},
	"clock-guard": {"warn", "bad", "clock guard"},
	"degraded":    {"stop", "bad", "degraded"},
	"erased":      {"slash", "quiet", "erased"},

	// of facts
	"in memory": {"true", "held", "in memory"},
	"evicted":   {"owed", "quiet", "evicted"},
	"retracted": {"slash", "quiet", "retracted"},

	// of proofs
	"same":    {"check", "good", "same in the second copy"},
	"differs": {"stop", "bad", "differs from the second copy"},
	"missing": {"unknown", "doubt", "not in the second copy"},

	// of steps
	"compensate": {"undone", "good", "compensate"},
	"probe":      {"doubt", "doubt", "probe"},
	"skip":       {"slash", "quiet", "skip"},
	"quarantine": {"stop", "bad", "quarantine"},
	"refused":    {"cross", "bad", "refused"},
	"void":       {"slash", "quiet", "void"},
	"ok":         {"check", "good", "ok"},
	"warn":       {"warn", "work", "look"},
}

// known is a state as the class of an element: one of the closed set, or "other".
func known(state string) string {
	if m, ok := marks[state]; ok {
		return m.tone
	}
	return "other"
}

// word is a state as people read it.
func word(state string) string {
	if m, ok := marks[state]; ok {
		return m.word
	}
	return state
}

// shape is the name of the picture of a state, which template "shape" draws.
func shape(state string) string {
	if m, ok := marks[state]; ok {
		return m.shape
	}
	return "unknown"
}
