package host

import (
	"context"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// verb is one question of the query API, or one request of operators.
type verb struct {
	slow   bool // it waits, or walks through a whole plan: it gets a goroutine
	always bool // also a host answers that leaves questions to another one
	answer func(a *actor, body []byte) any
}

func quick(answer func(*actor, []byte) any) verb { return verb{answer: answer} }

func slow(answer func(*actor, []byte) any) verb { return verb{slow: true, answer: answer} }

func everyHost(answer func(*actor, []byte) any) verb {
	return verb{slow: true, always: true, answer: answer}
}

// taking is a verb whose body is a Q; bare is one that takes {} or nothing.
func taking[Q any](answer func(*actor, Q) any) func(*actor, []byte) any {
	return func(a *actor, body []byte) any {
		var q Q
		if err := decodeStrict(body, &q); err != nil {
			return a.refuseRequest(err)
		}
		return answer(a, q)
	}
}

func bare(answer func(*actor) any) func(*actor, []byte) any {
	return taking(func(a *actor, _ struct{}) any { return answer(a) })
}

// questions are answered on api.QuerySubject, from snapshots of the state.
var questions = map[string]verb{
	"plan.ls":         quick(taking((*actor).askPlans)),
	"plan.find":       slow(taking((*actor).askFind)),
	"plan.show":       slow(taking((*actor).askPlan)),
	"plan.why":        slow(taking((*actor).askWhy)),
	"plan.outcome":    slow(taking((*actor).askOutcome)),
	"plan.preview":    slow(taking((*actor).askPreview)),
	"trigger.explain": slow(taking((*actor).askExplain)),
	"undo.ls":         slow(taking((*actor).askUndos)),
	"contract.ls":     quick(taking((*actor).askContracts)),
	"quarantine.ls":   quick(taking((*actor).askQuarantined)),
	"refused.ls":      quick(taking((*actor).askRefused)),
	"due.ls":          slow(taking((*actor).askUpcoming)),
	"capability.ls":   slow(bare((*actor).askCapabilities)),
	"worker.ls":       slow(bare((*actor).askWorkers)),
	"worker.served":   slow(taking((*actor).askServed)),
	"status":          slow(bare((*actor).askStatus)),
	"host":            everyHost(bare((*actor).askHost)),
	"ledger.read":     slow(taking((*actor).askRead)),
	"fact.get":        slow(taking((*actor).askFact)),
	"fact.ls":         slow(taking((*actor).askFacts)),
	"fact.history":    slow(taking((*actor).askHistory)),
	"memory.status":   quick(bare((*actor).askMemory)),
	"memory.queue":    slow(taking((*actor).askQueue)),
	"memory.rebuild":  slow(bare((*actor).askRebuild)),
	verbReleased:      everyHost(bare((*actor).leaseReleased)),
}

// questionVerb returns what answers a verb of the query API.
func questionVerb(name string) verb {
	if v, known := questions[name]; known {
		return v
	}
	if agent, ok := strings.CutPrefix(name, api.HistoryVerb); ok {
		ask := func(a *actor, q api.HistoryQuery) any { return a.askHistoryOf(agent, q) }
		return slow(taking(ask))
	}
	return quick(func(*actor, []byte) any {
		return view.ErrorAnswer{Error: "unknown question " + name}
	})
}

// administered are what operators ask on api.AdminSubject.
var administered = map[string]verb{
	"ledger.scrub":  slow(bare(func(a *actor) any { return a.bounded(a.askScrub) })),
	"ledger.export": slow(taking((*actor).askExport)),
	"ledger.sign":   slow(bare(handingOver("ledger.sign"))),
	"rebuild":       slow(bare(handingOver("rebuild"))),
	"ledger.repair": slow(taking(func(a *actor, q view.RepairQuery) any {
		return a.handOver(request{verb: "ledger.repair", repair: q})
	})),
	"key.rotate": slow(taking(func(a *actor, q view.RotationQuery) any {
		return a.handOver(request{verb: "key.rotate", rotation: q})
	})),
}

// adminVerb returns what carries out a request of operators.
func adminVerb(name string) verb {
	if v, known := administered[name]; known {
		return v
	}
	return quick(func(*actor, []byte) any {
		return view.ErrorAnswer{Error: "unknown request " + name}
	})
}

// bounded carries out what may take long, until the host stops.
func (a *actor) bounded(do func(context.Context) any) any {
	ctx, cancel := context.WithTimeout(context.Background(), rebuildMax)
	defer cancel()
	go func() { // ends with the answer, or ends it with the host
		select {
		case <-a.asking.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return do(ctx)
}

func handingOver(name string) func(*actor) any {
	return func(a *actor) any { return a.handOver(request{verb: name}) }
}

// handOver has the actor carry out a request between two turns.
func (a *actor) handOver(r request) any {
	return a.bounded(func(ctx context.Context) any {
		r.ctx, r.answer = ctx, make(chan any, 1)
		select {
		case a.requests <- r:
		case <-ctx.Done():
			return view.ErrorAnswer{Error: "the tenant is at something else; ask again"}
		}
		select {
		case answer := <-r.answer:
			return answer
		case <-ctx.Done():
			const text = "the host has stopped before it was done; look at sagenbaum status"
			return view.ErrorAnswer{Error: text}
		}
	})
}
