package console

import "html/template"

// Each state has a shape, a word and a colour, in this order of importance: whoever sees
// no colours reads the shape, and whoever sees neither hears the word.

// shapes are drawn in a square of 16; the class of the picture colours them.
var shapes = map[string]template.HTML{
	"ring":    `<circle cx="8" cy="8" r="5.25"/>`,
	"dot":     `<circle class="f" cx="8" cy="8" r="3"/>`,
	"owed":    `<circle cx="8" cy="8" r="5.25" stroke-dasharray="2.6 2.1"/>`,
	"half":    `<circle cx="8" cy="8" r="5.25"/><path class="f" d="M8 2.75a5.25 5.25 0 0 0 0 10.5z"/>`,
	"play":    `<circle cx="8" cy="8" r="5.9"/><path class="f" d="M6.4 5.2v5.6L11 8z"/>`,
	"clock":   `<circle cx="8" cy="8" r="5.6"/><path d="M8 4.9V8l2.2 1.5"/>`,
	"undone":  `<path class="f" d="M8 1.6a6.4 6.4 0 1 1 0 12.8A6.4 6.4 0 0 1 8 1.6z"/><path class="k" d="m5 8.2 2.1 2.1L11.2 6"/>`,
	"check":   `<circle cx="8" cy="8" r="5.6"/><path d="m5.4 8.2 1.8 1.8 3.4-3.7"/>`,
	"slash":   `<circle cx="8" cy="8" r="5.25"/><path d="M4.6 11.4l6.8-6.8"/>`,
	"stop":    `<path class="f" d="M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8H5.3l-3.8-3.8V5.3z"/><path class="k" d="M8 4.6v4.2M8 11.2v.2"/>`,
	"answer":  `<path d="M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5z"/><path d="m5.5 8.1 1.8 1.8 3.2-3.6"/>`,
	"cross":   `<path d="M4.2 4.2l7.6 7.6M11.8 4.2l-7.6 7.6"/>`,
	"doubt":   `<path d="M8 1.8 14.2 8 8 14.2 1.8 8z"/><path d="M6.6 6.7c0-1 .7-1.5 1.5-1.5s1.5.5 1.5 1.3c0 1-1.5 1.1-1.5 2.1M8 10.7v.1"/>`,
	"unwind":  `<path d="M3.2 5.5h6.3a3.5 3.5 0 1 1 0 7H5.5"/><path d="M5.7 2.8 3 5.5l2.7 2.7"/>`,
	"sealed":  `<path d="m2 8.4 2.7 2.7L10 5.5M8 10.6l.7.6L14 5.5"/>`,
	"true":    `<path class="f" d="M8 2.3a5.7 5.7 0 1 1 0 11.4A5.7 5.7 0 0 1 8 2.3z"/>`,
	"unknown": `<circle cx="8" cy="8" r="5.25"/><path d="M6.7 6.7c0-1 .6-1.4 1.4-1.4s1.3.5 1.3 1.2c0 .9-1.3 1-1.3 2M8 10.7v.1"/>`,
	"warn":    `<path d="M8 2.2 14.3 13.3H1.7z"/><path d="M8 6.4v3.2M8 11.5v.1"/>`,
}

// marks say of each state which shape, colour and word it has.
var marks = map[string]struct{ shape, tone, word string }{
	// of undos
	"held": {"ring", "held", "held"}, "retired": {"dot", "quiet", "retired"}, "owed": {"owed", "due", "owed"}, "ready": {"half", "due", "ready"},
	"dispatched": {"play", "work", "undoing"}, "waiting": {"clock", "work", "waits to retry"}, "compensated": {"undone", "good", "compensated"},
	"skipped": {"slash", "quiet", "skipped"}, "quarantined": {"stop", "bad", "quarantined"}, "resolved": {"answer", "good", "resolved"}, "exhausted": {"stop", "bad", "attempts spent"},
	// of outcomes
	"completed": {"check", "quiet", "completed"}, "failed": {"cross", "bad", "failed"}, "in_doubt": {"doubt", "doubt", "in doubt"}, "unknown": {"unknown", "doubt", "unknown"},
	// of plans
	"open": {"ring", "held", "open"}, "committing": {"clock", "work", "committing"}, "committed": {"sealed", "quiet", "committed"}, "unwinding": {"unwind", "work", "unwinding"},
	// of attempts
	"done": {"undone", "good", "done"}, "verifying": {"clock", "work", "being verified"},
	// of truths
	"true": {"true", "work", "true"}, "false": {"ring", "quiet", "false"}, "moot": {"slash", "quiet", "moot"}, "fired": {"true", "bad", "fired"}, "cut": {"stop", "bad", "cut"},
	// of tenants
	"holding": {"check", "good", "holding"}, "standby": {"ring", "quiet", "stands by"}, "starting": {"clock", "work", "starting"},
	"halted": {"stop", "bad", "halted"}, "clock-guard": {"warn", "bad", "clock guard"}, "degraded": {"stop", "bad", "degraded"},
	// of facts
	"in memory": {"true", "held", "in memory"}, "evicted": {"owed", "quiet", "evicted"}, "retracted": {"slash", "quiet", "retracted"},
	// of proofs
	"same": {"check", "good", "same in the second copy"}, "differs": {"stop", "bad", "differs from the second copy"}, "missing": {"unknown", "doubt", "not in the second copy"},
	// of steps
	"compensate": {"undone", "good", "compensate"}, "probe": {"doubt", "doubt", "probe"}, "skip": {"slash", "quiet", "skip"}, "quarantine": {"stop", "bad", "quarantine"},
	"refused": {"cross", "bad", "refused"}, "void": {"slash", "quiet", "void"}, "ok": {"check", "good", "ok"}, "warn": {"warn", "work", "look"},
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
	return printable(state)
}

// mark is the picture of a state. What it says stands beside it as text.
func mark(state string) template.HTML {
	m, ok := marks[state]
	if !ok {
		m.shape, m.tone = "unknown", "other"
	}
	return `<svg class="mark ` + template.HTML(m.tone) + `" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">` + shapes[m.shape] + `</svg>`
}
