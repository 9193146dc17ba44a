package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// moving is a contract that keeps where the event was before it is moved.
func moving() contract.Contract {
	return contract.Contract{
		Capability: "calendar.move", Class: contract.Compensable,
		Before: &contract.Before{Call: "calendar.get",
			With: map[string]any{"id": "=input.id", "plan": "=plan.label", "key": "=meta.forward_key"}},
		Inverse:    &contract.Inverse{Call: "calendar.move", With: map[string]any{"id": "=input.id", "to": "=before.at"}},
		ValidUntil: "input.ends == null ? null : timestamp(input.ends)",
	}
}

func startMoving(t *testing.T, store Appender, b bus, answers map[string]Answer) *Coordinator {
	t.Helper()
	c, err := newCoordinator(Config{Appender: store, Tenant: tenant, Agent: "a1", Contracts: append(contracts(), moving()),
		Answers: answers}, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func move(id string) Action {
	return Action{ID: id, Capability: "calendar.move", Input: json.RawMessage(`{"id":"e1","ends":null}`)}
}

const pairOfMove = "plan_opened forward_registered/m compensation_registered/m"

// calendar answers questions from a script, as a worker does; the last line
// answers for ever.
func calendar(script ...any) (*executor, *[]api.Command) {
	asked := &[]api.Command{}
	return &executor{serve: map[string]func([]byte) any{"ask.default.calendar.get": func(body []byte) any {
		var q api.Command
		if err := json.Unmarshal(body, &q); err != nil {
			return err
		}
		*asked = append(*asked, q)
		answer := script[0]
		if len(script) > 1 {
			script = script[1:]
		}
		if reply, ok := answer.(api.Reply); ok {
			return q.Answer(reply)
		}
		if say, ok := answer.(func(api.Command) []byte); ok {
			return say(q)
		}
		return answer
	}}}, asked
}

func TestWhatWasThereBeforeIsKeptWithThePair(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		e, asked := calendar(api.Reply{Status: "done", Output: json.RawMessage(`{"at":"9:00"}`)})
		p := begin(t, startMoving(t, store, e, nil), PlanSpec{Label: "week"})
		if _, err := p.Do(t.Context(), move("m"), func(ctx context.Context, c Call) (Outcome, error) {
			wantLines(t, store, pairOfMove)
			return happens(ctx, c)
		}); err != nil {
			t.Fatal(err)
		}
		if before := find(t, store, "compensation_registered/m").Payload.GetBefore(); string(before) != `{"at":"9:00"}` {
			t.Errorf("kept %s", before)
		}
		key := ledger.Key(tenant, p.ID(), "m", ledger.PurposeDo)
		want := api.Command{
			Purpose: "before", Tenant: tenant, Plan: p.ID(), Action: "m", Capability: "calendar.get", Forward: "calendar.move",
			Arguments: json.RawMessage(`{"id":"e1","key":"` + key + `","plan":"week"}`), Key: key, Attempt: 1, TimeoutMs: 30_000,
		}
		if len(*asked) != 1 || fmt.Sprintf("%+v", (*asked)[0]) != fmt.Sprintf("%+v", want) {
			t.Errorf("asked %+v\nwant %+v", *asked, want)
		}
	})
}

func TestWhatCannotBeCapturedDoesNotCross(t *testing.T) {
	done := func(output string) api.Reply { return api.Reply{Status: "done", Output: json.RawMessage(output)} }
	failed := api.Reply{Status: "failed", Code: "locked", Message: "later"}
	said := func(members string) func(q api.Command) []byte {
		return func(q api.Command) []byte { return fmt.Appendf(nil, `{"key":%q,"status":"done",%s}`, q.Key, members) }
	}
	for _, c := range []struct {
		name   string
		script []any
		asked  int
		kept   string // "": not captured
		took   time.Duration
	}{
		{"at once", []any{done(`1`)}, 1, `1`, 0},
		{"nothing was there", []any{done(`null`)}, 1, `null`, 0},
		{"at the third attempt", []any{errNobody, failed, done(`{}`)}, 3, `{}`, 3 * time.Second},
		{"nobody answers", []any{errNobody}, 3, "", 3 * time.Second},
		{"it fails", []any{failed}, 3, "", 3 * time.Second},
		{"it never will", []any{api.Reply{Status: "stop", Code: "gone"}}, 1, "", 0},
		{"no output", []any{api.Reply{Status: "done"}}, 1, "", 0},
		{"working", []any{api.Reply{Status: "working"}}, 3, "", 3 * time.Second},
		{"no JSON", []any{[]byte("{")}, 3, "", 3 * time.Second},
		{"other spellings", []any{said(`"attempt":1.0,"code":404,"worker":7,"work_ns":4.1e6,"output":1`)}, 1, `1`, 0},
		{"a field of no use", []any{said(`"attempt":"1","message":{},"tool_ns":NaN,"output":1`)}, 1, `1`, 0},
		{"an output of no use, then one", []any{said(`"attempt":1,"output":NaN`), done(`1`)}, 2, `1`, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				store := memory()
				e, asked := calendar(c.script...)
				p := begin(t, startMoving(t, store, e, nil), PlanSpec{})
				began := time.Now()
				forward := never(t)
				if c.kept != "" {
					forward = happens
				}
				_, err := p.Do(t.Context(), move("m"), forward)
				if took := time.Since(began); took != c.took || len(*asked) != c.asked {
					t.Errorf("it took %v and %d questions", took, len(*asked))
				}
				if c.kept != "" {
					if before := find(t, store, "compensation_registered/m").Payload.GetBefore(); err != nil ||
						string(before) != c.kept {
						t.Errorf("kept %s, %v", before, err)
					}
					return
				}
				wantIs(t, err, ErrNotCaptured)
				elapse(time.Second)
				wantLines(t, store, "")
				if n := len(p.c.committer.places); n != 0 {
					t.Errorf("%d places are taken", n)
				}
			})
		})
	}
}

func TestACaptureEndsWithItsCaller(t *testing.T) {
	in(t, func(t *testing.T) {
		e, _ := calendar(errNobody)
		p := begin(t, startMoving(t, memory(), e, nil), PlanSpec{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := p.Do(ctx, move("m"), never(t))
		wantIs(t, err, ErrNotCaptured)
		wantIs(t, err, context.DeadlineExceeded)
	})
}

func TestABeforeImageThatIsTooLargeIsRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		for _, answer := range []api.Reply{
			{Status: "done", Output: json.RawMessage(`"` + strings.Repeat("x", BeforeMax) + `"`)},
			{Status: "done", Message: "output left out: 40014 bytes"}, // as the worker's library says it
		} {
			store := memory()
			e, _ := calendar(answer)
			p := begin(t, startMoving(t, store, e, nil), PlanSpec{})
			_, err := p.Do(t.Context(), move("m"), never(t))
			wantRefused(t, err, "action.before")
			if !strings.Contains(err.Error(), answer.Message) {
				t.Errorf("%v does not say %s", err, answer.Message)
			}
			wantLines(t, store, "")
		}
	})
}

func TestAnAnswerInThisProcessNeedsNoWorker(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		answers := map[string]Answer{"calendar.get": func(_ context.Context, q api.Command) (any, error) {
			if q.Attempt == 1 {
				return nil, errors.New("busy")
			}
			return map[string]any{"at": q.Attempt}, nil
		}}
		p := begin(t, startMoving(t, store, nil, answers), PlanSpec{})
		mustDo(t, p, move("m"))
		if before := find(t, store, "compensation_registered/m").Payload.GetBefore(); string(before) != `{"at":2}` {
			t.Errorf("kept %s", before)
		}
		delete(answers, "calendar.get") // the coordinator has its own
		mustDo(t, p, move("m2"))
		alone := begin(t, startMoving(t, memory(), nil, nil), PlanSpec{})
		_, err := alone.Do(t.Context(), move("m"), never(t))
		wantRefused(t, err, "config.answers[calendar.get]")
	})
}

func TestAReportBringsItsBeforeImage(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, startMoving(t, store, nil, nil), PlanSpec{})
		wantRefused(t, p.Report(t.Context(), move("m"), Outcome{}), "outcome.before")
		wantRefused(t, p.Report(t.Context(), move("m"), Outcome{Before: json.RawMessage("{")}), "outcome.before")
		wantRefused(t, p.Report(t.Context(), move("m"), Outcome{Before: strings.Repeat("x", BeforeMax)}), "outcome.before")
		wantLines(t, store, "")
		if err := p.Report(t.Context(), move("m"), Outcome{Before: map[string]string{"at": "9:00"}}); err != nil {
			t.Fatal(err)
		}
		wantLines(t, store, pairOfMove+" forward_completed/m")
		if before := find(t, store, "compensation_registered/m").Payload.GetBefore(); string(before) != `{"at":"9:00"}` {
			t.Errorf("kept %s", before)
		}
	})
}

// TestACallThatJoinsAsksNothing: what is there by then is not what was there before.
func TestACallThatJoinsAsksNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		g := newGate(store)
		e, asked := calendar(api.Reply{Status: "done", Output: json.RawMessage(`1`)},
			api.Reply{Status: "done", Output: json.RawMessage(`2`)})
		p := begin(t, startMoving(t, g, e, nil), PlanSpec{})
		soon, cancel := context.WithTimeout(t.Context(), startSlack/2)
		defer cancel()
		_, err := p.Do(soon, move("m"), never(t))
		wantIs(t, err, ledger.ErrInDoubt)
		close(g.open)
		mustDo(t, p, move("m"))
		if before := find(t, store, "compensation_registered/m").Payload.GetBefore(); string(before) != "1" ||
			len(*asked) != 1 {
			t.Errorf("kept %s after %d questions", before, len(*asked))
		}
	})
}

// TestActionsWithoutAnIDAskUnderTheirOwnKeys: a worker answers questions of one key
// once.
func TestActionsWithoutAnIDAskUnderTheirOwnKeys(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		var mu sync.Mutex
		keys := map[string]string{}
		release := make(chan struct{})
		answers := map[string]Answer{"calendar.get": func(_ context.Context, q api.Command) (any, error) {
			mu.Lock()
			keys[q.Action] = q.Key
			mu.Unlock()
			<-release
			return q.Action, nil
		}}
		p := begin(t, startMoving(t, store, nil, answers), PlanSpec{})
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if _, err := p.Do(t.Context(), move(""), happens); err != nil {
					t.Error(err)
				}
			})
		}
		elapse(time.Second)
		_, err := p.Do(t.Context(), write("2"), never(t))
		wantRefused(t, err, "action.id")
		mustDo(t, p, write("")) // takes the next number
		close(release)
		wait.Wait()
		for _, id := range []string{"1", "2", "3"} {
			if before := find(t, store, "compensation_registered/"+id).Payload.GetBefore(); string(before) != `"`+id+`"` ||
				keys[id] != ledger.Key(tenant, p.ID(), id, "do") {
				t.Errorf("action %s kept %s, asked under %q", id, before, keys[id])
			}
		}
		find(t, store, "forward_registered/4")
		if len(p.reserved) != 0 {
			t.Errorf("numbers %v are still taken", p.reserved)
		}
	})
}

func TestTheEndOfTheUndoWindowIsFrozenWithThePair(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		e, asked := calendar(api.Reply{Status: "done", Output: json.RawMessage(`1`)})
		p := begin(t, startMoving(t, store, e, nil), PlanSpec{})
		bad := move("bad")
		bad.Input = json.RawMessage(`{"id":"e1","ends":"tomorrow"}`)
		_, err := p.Do(t.Context(), bad, never(t))
		wantRefused(t, err, "contract[calendar.move].valid_until")
		wantRefused(t, p.Report(t.Context(), bad, Outcome{Before: 1}), "contract[calendar.move].valid_until")
		if len(*asked) != 0 {
			t.Error("a worker was asked")
		}
		wantLines(t, store, "")
		good := move("m")
		good.Input = json.RawMessage(`{"id":"e1","ends":"2030-01-02T03:04:05Z"}`)
		mustDo(t, p, good)
		if until := find(t, store,
			"compensation_registered/m").GetCompensationRegistered().ValidUntilNs; until != time.Date(
			2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano() {
			t.Errorf("until %d", until)
		}
		mustDo(t, p, move("n"))
		if until := find(t, store, "compensation_registered/n").GetCompensationRegistered().ValidUntilNs; until != 0 {
			t.Errorf("until %d", until)
		}
	})
}

func TestAnErrorNamesAnActionWithoutAnID(t *testing.T) {
	in(t, func(t *testing.T) {
		e, _ := calendar()
		p := begin(t, startMoving(t, memory(), e, nil), PlanSpec{})
		_, err := p.Do(t.Context(), Action{Capability: "moon.book"}, never(t))
		if err == nil || !strings.Contains(err.Error(), `cannot register action "moon.book"`) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestWithoutAWindowNothingIsHeldAfterTheCommit: the contract finds an end for some inputs only, and
// no input is refused for it.
func TestWithoutAWindowNothingIsHeldAfterTheCommit(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		held := moving()
		held.Before, held.Inverse.With = nil, map[string]any{"id": "=input.id"}
		held.Triggers = map[string]string{"recalled": `"recall" in facts`, "other": `"other" in facts`}
		held.AfterCommit = []string{"recalled"}
		c, err := newCoordinator(Config{Appender: store, Tenant: tenant, Agent: "a1",
			Contracts: []contract.Contract{held}}, &executor{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		p := begin(t, c, PlanSpec{})
		for _, x := range []struct {
			id, ends string
			held     bool
		}{{"m1", `null`, false}, {"m2", `"2099-01-02T00:00:00Z"`, true}, {"m3", `null`, false}} {
			input := json.RawMessage(`{"id":"e1","ends":` + x.ends + `}`)
			if _, err := p.Do(t.Context(), Action{ID: x.id, Capability: "calendar.move", Input: input}, happens); err != nil {
				t.Fatal(err)
			}
			k := find(t, store, "compensation_registered/"+x.id).GetCompensationRegistered()
			if len(k.Triggers) != 2 || k.Triggers[0].AfterCommit || k.Triggers[1].AfterCommit != x.held {
				t.Errorf("%s, window until %d: %v", x.id, k.ValidUntilNs, k.Triggers)
			}
		}
	})
}
