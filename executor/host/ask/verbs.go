package ask

import (
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// verb is one question of the query API, or one request of operators.
type verb struct {
	slow   bool // it waits, or walks through a whole plan: it gets a goroutine
	always bool // also a host answers that leaves questions to another one
	answer func(d *Desk, body []byte) any
	// asked is answer for a verb that depends on the user who asks; empty: it is not known.
	asked func(d *Desk, user string, body []byte) any
}

func quick(answer func(*Desk, []byte) any) verb { return verb{answer: answer} }

func slow(answer func(*Desk, []byte) any) verb { return verb{slow: true, answer: answer} }

func everyHost(answer func(*Desk, []byte) any) verb {
	return verb{slow: true, always: true, answer: answer}
}

// sharing is a verb of which each user has a share.
func sharing[Q any](answer func(*Desk, string, Q) any) verb {
	return verb{slow: true, asked: func(d *Desk, user string, body []byte) any {
		return taking(func(d *Desk, q Q) any { return answer(d, user, q) })(d, body)
	}}
}

// taking is a verb whose body is a Q; bare is one that takes {} or nothing.
func taking[Q any](answer func(*Desk, Q) any) func(*Desk, []byte) any {
	return func(d *Desk, body []byte) any {
		var q Q
		if err := decodeStrict(body, &q); err != nil {
			return d.refuse(err)
		}
		return answer(d, q)
	}
}

// looking is taking for what the state alone answers.
func looking[Q any](read func(*view.Reader, Q) any) func(*Desk, []byte) any {
	return taking(func(d *Desk, q Q) (answer any) {
		d.look(func(r *view.Reader) { answer = read(r, q) })
		return answer
	})
}

func bare(answer func(*Desk) any) func(*Desk, []byte) any {
	return taking(func(d *Desk, _ struct{}) any { return answer(d) })
}

// VerbReleased is published to all hosts of a tenant when its leadership was given back.
const VerbReleased = "released"

// VerbErased is published to all hosts of a tenant when its erasure has begun.
const VerbErased = "erased"

// questions are answered on api.QuerySubject, from snapshots of the state.
var questions = map[string]verb{
	"plan.ls":         quick(looking(plans)),
	"plan.find":       slow(looking(find)),
	"plan.show":       slow(taking((*Desk).plan)),
	"plan.why":        slow(taking((*Desk).why)),
	"plan.outcome":    sharing((*Desk).outcome),
	"plan.preview":    slow(taking((*Desk).preview)),
	"trigger.explain": slow(taking((*Desk).explain)),
	"undo.ls":         slow(looking(undos)),
	"contract.ls":     quick(looking(contracts)),
	"quarantine.ls":   quick(looking(quarantined)),
	"refused.ls":      quick(looking(refused)),
	"due.ls":          slow(taking((*Desk).upcoming)),
	"capability.ls":   slow(looking(capabilities)),
	"worker.ls":       slow(bare((*Desk).workers)),
	"worker.served":   slow(taking((*Desk).whoServes)),
	"status":          slow(bare((*Desk).status)),
	"host":            everyHost(bare((*Desk).host)),
	"ledger.read":     slow(taking((*Desk).read)),
	"ledger.stream":   slow(bare((*Desk).stream)),
	"fact.get":        slow(taking((*Desk).fact)),
	"fact.ls":         slow(looking(facts)),
	"fact.history":    slow(taking((*Desk).history)),
	"review.ls":       slow(looking(reviews)),
	"memory.status":   quick(bare((*Desk).memory)),
	"memory.queue":    slow(taking((*Desk).queue)),
	"memory.rebuild":  slow(bare((*Desk).rebuild)),
	VerbReleased:      everyHost(bare(func(d *Desk) any { d.Released(); return struct{}{} })),
	VerbErased:        everyHost(bare(func(d *Desk) any { d.Erased(); return nil })),
}

// Verbs are the names of all questions and of all requests of operators, in order.
func Verbs() (asked, requested []string) {
	return slices.Sorted(maps.Keys(questions)), slices.Sorted(maps.Keys(administered))
}

// questionVerb returns what answers a verb of the query API.
func questionVerb(name string) verb {
	if v, known := questions[name]; known {
		return v
	}
	if agent, ok := strings.CutPrefix(name, api.HistoryVerb); ok {
		ask := func(d *Desk, q api.HistoryQuery) any { return d.historyOf(agent, q) }
		return slow(taking(ask))
	}
	if agent, ok := strings.CutPrefix(name, api.PreviewVerb); ok {
		return slow(taking(func(d *Desk, q api.PreviewQuery) any { return d.previewOf(agent, q) }))
	}
	return quick(func(*Desk, []byte) any {
		return api.ErrorAnswer{Error: "unknown question " + name}
	})
}

// administered are what operators ask on api.AdminSubject.
var administered = map[string]verb{
	"ledger.scrub":  slow(bare(func(d *Desk) any { return d.bounded(d.scrub) })),
	"ledger.export": slow(taking((*Desk).export)),
	"ledger.sign":   slow(bare(handingOver("ledger.sign"))),
	"rebuild":       slow(bare(handingOver("rebuild"))),
	"ledger.repair": slow(taking(func(d *Desk, q api.RepairQuery) any {
		return d.handOver(Request{Verb: "ledger.repair", Repair: q})
	})),
	"tenant.erase": slow(taking(func(d *Desk, q api.TenantErasureQuery) any {
		d.Board.catchUp() // a plan that was opened just now counts
		return d.handOver(Request{Verb: "tenant.erase", Erasure: q})
	})),
	"key.rotate": slow(taking(func(d *Desk, q api.RotationQuery) any {
		return d.handOver(Request{Verb: "key.rotate", Rotation: q})
	})),
}

// adminVerb returns what carries out a request of operators.
func adminVerb(name string) verb {
	if v, known := administered[name]; known {
		return v
	}
	return quick(func(*Desk, []byte) any {
		return api.ErrorAnswer{Error: "unknown request " + name}
	})
}

func handingOver(name string) func(*Desk) any {
	return func(d *Desk) any { return d.handOver(Request{Verb: name}) }
}
