package ask

import (
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// verb is one question of the query API, or one request of operators, as a desk answers it.
type verb struct {
	name   string
	always bool // also a host answers that leaves questions to another one
	// answer: where both the value and the error are nil, this host says nothing.
	answer func(d *Desk, body []byte) (any, error)
}

// takes is a verb with its handler.
func takes[Q, A any](v api.Verb[Q, A], handle func(*Desk, Q) (A, error)) verb {
	return verb{name: v.Name, answer: func(d *Desk, body []byte) (any, error) {
		var q Q
		if err := d.decode(body, &q); err != nil {
			return nil, err
		}
		answer, err := handle(d, q)
		return answer, err
	}}
}

// alone is an error that is sent without the empty answer beside it.
type alone struct{ error }

func (a alone) Unwrap() error { return a.error }

func (v verb) everyHost() verb {
	v.always = true
	return v
}

// told is what hosts tell each other; v is answered with what answer returns, nil: nothing.
func told[Q any](name string, answer func(*Desk, Q) any) verb {
	v := takes(api.Verb[Q, any]{Call: api.Call{Name: name}}, func(d *Desk, q Q) (any, error) {
		return answer(d, q), nil
	})
	return v.everyHost()
}

// looking is the handler of what the state alone answers.
func looking[Q, A any](read func(*view.Reader, Q) (A, error)) func(*Desk, Q) (A, error) {
	return func(d *Desk, q Q) (answer A, err error) {
		d.look(func(r *view.Reader) { answer, err = read(r, q) })
		return answer, err
	}
}

// bare is the handler of what takes nothing.
func bare[A any](answer func(*Desk) (A, error)) func(*Desk, api.Nothing) (A, error) {
	return func(d *Desk, _ api.Nothing) (A, error) { return answer(d) }
}

// VerbReleased is published to all hosts of a tenant when its leadership was given back.
const VerbReleased = "released"

// VerbErased is published to all hosts of a tenant when its erasure has begun.
const VerbErased = "erased"

// questions are answered on api.QuerySubject, from snapshots of the state.
var questions = byName(
	takes(api.PlanLs, looking((*view.Reader).List)),
	takes(api.PlanFind, looking((*view.Reader).Find)),
	takes(api.PlanShow, (*Desk).plan),
	takes(api.PlanWhy, (*Desk).why),
	takes(api.PlanOutcome, (*Desk).outcome),
	takes(api.PlanPreview, (*Desk).preview),
	takes(api.TriggerExplain, (*Desk).explain),
	takes(api.UndoLs, looking(undos)),
	takes(api.ContractLs, looking(contracts)),
	takes(api.QuarantineLs, looking(quarantined)),
	takes(api.RefusedLs, looking(refused)),
	takes(api.DueLs, (*Desk).upcoming),
	takes(api.CapabilityLs, looking(capabilities)),
	takes(api.WorkerLs, bare((*Desk).workers)),
	takes(api.WorkerServed, (*Desk).whoServes),
	takes(api.TenantStatus, bare((*Desk).status)),
	takes(api.TenantHost, bare((*Desk).host)).everyHost(),
	takes(api.LedgerRead, (*Desk).read),
	takes(api.LedgerStream, bare((*Desk).stream)),
	takes(api.FactGet, (*Desk).fact),
	takes(api.FactLs, looking(facts)),
	takes(api.FactHistory, (*Desk).history),
	takes(api.ReviewLs, (*Desk).reviews),
	takes(api.MemoryStatus, bare((*Desk).memory)),
	takes(api.MemoryQueue, (*Desk).queue),
	takes(api.MemoryRebuild, bare((*Desk).rebuild)),
	told(VerbReleased, func(d *Desk, _ api.Nothing) any { d.Released(); return api.Nothing{} }),
	told(VerbErased, func(d *Desk, _ api.Nothing) any { d.Erased(); return nil }),
)

// administered are what operators ask on api.AdminSubject.
var administered = byName(
	takes(api.LedgerScrub, bare((*Desk).scrub)),
	takes(api.LedgerExport, (*Desk).export),
	takes(api.LedgerSign, handingOver(
		func(h *Handed[api.Nothing, api.SignAnswer]) Request { return Request{Sign: h} })),
	takes(api.Rebuild, handingOver(
		func(h *Handed[api.Nothing, api.DroppedAnswer]) Request { return Request{Rebuild: h} })),
	takes(api.LedgerRepair, handingOver(
		func(h *Handed[api.RepairQuery, api.RepairAnswer]) Request { return Request{Repair: h} })),
	takes(api.KeyRotate, handingOver(
		func(h *Handed[api.RotationQuery, api.RotationAnswer]) Request { return Request{Rotate: h} })),
	takes(api.TenantErase, func(d *Desk, q api.TenantErasureQuery) (api.TenantErasureAnswer, error) {
		d.catchUp() // a plan that was opened just now counts
		return erase(d, q)
	}),
)

var erase = handingOver(func(h *Handed[api.TenantErasureQuery, api.TenantErasureAnswer]) Request {
	return Request{Erase: h}
})

func byName(list ...verb) map[string]verb {
	verbs := make(map[string]verb, len(list))
	for _, v := range list {
		verbs[v.name] = v
	}
	return verbs
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
		return takes(api.PlanHistory(agent),
			func(d *Desk, q api.HistoryQuery) (api.HistoryAnswer, error) { return d.historyOf(agent, q) })
	}
	if agent, ok := strings.CutPrefix(name, api.PreviewVerb); ok {
		return takes(api.OwnPreview(agent),
			func(d *Desk, q api.PreviewQuery) (api.PreviewAnswer, error) { return d.previewOf(agent, q) })
	}
	return unknown(name, "question")
}

// adminVerb returns what carries out a request of operators.
func adminVerb(name string) verb {
	if v, known := administered[name]; known {
		return v
	}
	return unknown(name, "request")
}

func unknown(name, what string) verb {
	return verb{name: name, answer: func(*Desk, []byte) (any, error) {
		return nil, &api.Problem{Text: "unknown " + what + " " + name}
	}}
}
