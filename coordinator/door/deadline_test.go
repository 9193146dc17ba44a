package door_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// write appends a record of an operator.
func (l *live) write(r *pb.Record) {
	l.t.Helper()
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: "ops"}
	data, err := ledger.EncodeCommit([]*pb.Record{r})
	if err == nil {
		_, err = l.store.Append(l.t.Context(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// moves has an operator move the deadline of a plan, and returns what is in force then.
func (l *live) moves(plan string, at time.Time) string {
	l.t.Helper()
	l.write(&pb.Record{Plan: plan, Kind: &pb.Record_DeadlineMoved{DeadlineMoved: &pb.DeadlineMoved{
		DeadlineNs: at.UnixNano(), Reason: "a holiday", Actor: "ops"}}})
	want := at.UTC().Format(time.RFC3339Nano)
	return fmt.Sprint(l.shows(plan, func(got map[string]any) bool { return got["deadline_at"] == want })["deadline_set"])
}

// shows waits until plan.get shows a plan so.
func (l *live) shows(plan string, so func(got map[string]any) bool) map[string]any {
	l.t.Helper()
	for end := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) {
		got := l.good(l.post, "tripper", "plan.get", fmt.Sprintf(`{"plan":%q}`, plan))
		if so(got) {
			return got
		}
		if time.Now().After(end) {
			l.t.Fatal(got)
		}
	}
}

// waits asks for an act that waits for its verdict, until the ledger has it: before that no verdict
// can be given on it, and a door that is killed has asked for nothing.
func (l *live) waits(plan, act string) {
	l.t.Helper()
	if a := l.good(l.post, "tripper", "plan.act", act); a["state"] != "waiting" {
		l.t.Fatalf("%s: %v", plan, a)
	}
	l.shows(plan, func(got map[string]any) bool {
		acts, _ := got["acts"].([]any)
		return len(acts) > 0
	})
}

// deadline is a request of plan.deadline.
func deadline(plan, to string, follows any) string {
	return fmt.Sprintf(`{"plan":%q,%s,"reason":"it takes longer","follows":%v}`, plan, to, follows)
}

// TestADeadlineIsMovedOnceByARequestThatIsRepeated, earlier, later, or a first one, as a duration or
// as an instant; also by a door that has forgotten all that it knew. What plan.get, plan.begin and
// the answer show is the deadline that is in force.
func TestADeadlineIsMovedOnceByARequestThatIsRepeated(t *testing.T) {
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		begin := fmt.Sprintf(`{"plan":%q,"deadline":"2h"}`, p)
		first := l.good(ask, "tripper", "plan.begin", begin)
		instant := time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339Nano)
		set := first["deadline_set"]
		before := l.records()["deadline_moved"]
		for n, to := range []string{`"deadline":"3h"`, fmt.Sprintf(`"deadline_at":%q`, instant), `"deadline":"1h"`} {
			body := deadline(p, to, set)
			a := l.good(ask, "tripper", "plan.deadline", body)
			if a["state"] != "open" || a["deadline_set"].(float64) <= set.(float64) {
				t.Fatalf("%s: %v", to, a)
			}
			for _, crash := range []bool{false, true} {
				if crash {
					l.crash()
				}
				if again := l.good(ask, "tripper", "plan.deadline", body); fmt.Sprint(again) != fmt.Sprint(a) {
					t.Fatalf("%s again: %v, and first %v", to, again, a)
				}
				for verb, body := range map[string]string{"plan.get": fmt.Sprintf(`{"plan":%q}`, p), "plan.begin": begin} {
					got := l.good(ask, "tripper", verb, body)
					if got["deadline_at"] != a["deadline_at"] || got["deadline_set"] != a["deadline_set"] {
						t.Errorf("%s: %v, and moved: %v", verb, got, a)
					}
				}
			}
			if got := l.records()["deadline_moved"]; got != before+n+1 {
				t.Errorf("%d records, and there were %d", got, before)
			}
			set = a["deadline_set"]
		}
		q := p + "-none"
		none := l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q}`, q))
		a := l.good(ask, "tripper", "plan.deadline", deadline(q, fmt.Sprintf(`"deadline_at":%q`, instant), none["deadline_set"]))
		if none["deadline_at"] != nil || a["deadline_at"] != instant {
			t.Errorf("begun %v, moved %v", none, a)
		}
	})
}

// TestADeadlineThatOthersHaveMovedIsNotMoved by a request that has not seen it: it says who has moved
// it, to when and why. Nor does the id of an earlier request move it elsewhere.
func TestADeadlineThatOthersHaveMovedIsNotMoved(t *testing.T) {
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		set := l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q,"deadline":"2h"}`, p))["deadline_set"]
		body := deadline(p, `"deadline":"3h"`, set)
		a := l.good(ask, "tripper", "plan.deadline", body)
		for field, other := range map[string]string{"deadline": deadline(p, `"deadline":"4h"`, set),
			"deadline_at": deadline(p, `"deadline_at":"2100-01-01T00:00:00Z"`, set),
			"reason":      strings.Replace(body, "longer", "for ever", 1)} {
			l.other(ask, "tripper", "plan.deadline", other, "follows", field)
		}
		at := time.Now().Add(5 * time.Hour)
		now := l.moves(p, at)
		for _, seen := range []any{set, a["deadline_set"]} {
			e := l.refused(ask, "tripper", "plan.deadline", deadline(p, `"deadline":"4h"`, seen), 409, "follows")
			for _, want := range []string{"ops has moved it to " + at.UTC().Format(time.RFC3339Nano), "a holiday", now} {
				if problem := fmt.Sprint(e["problem"]); !strings.Contains(problem, want) || e["stored"] != "nothing" {
					t.Errorf("%v, want %q", e, want)
				}
			}
		}
		if got := l.good(ask, "tripper", "plan.deadline", deadline(p, `"deadline":"4h"`, now)); got["deadline_set"] == now {
			t.Errorf("%v", got)
		}
	})
}

// TestADeadlineIsNotMovedInAPlanThatEnds: the one that it was moved to undoes the plan, and from then
// on it stays; the request that has moved it is still told so.
func TestADeadlineIsNotMovedInAPlanThatEnds(t *testing.T) {
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		set := l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q,"deadline":"2h"}`, p))["deadline_set"]
		l.good(ask, "tripper", "plan.report", fmt.Sprintf(
			`{"plan":%q,"action":"a","capability":"hotel.book","input":{"city":"Rome"},"output":{"booking":"1"}}`, p))
		passed := deadline(p, `"deadline_at":"2001-01-01T00:00:00Z"`, set)
		if e := l.refused(ask, "tripper", "plan.deadline", passed, 422, "deadline_at"); !strings.Contains(
			fmt.Sprint(e["problem"]), "it has passed: 2001-01-01") {
			t.Errorf("%v", e)
		}
		body := deadline(p, `"deadline":"700ms"`, set)
		moved := l.good(ask, "tripper", "plan.deadline", body)
		l.shows(p, func(got map[string]any) bool { return got["state"] == "compensated" })
		e := l.refused(ask, "tripper", "plan.deadline", deadline(p, `"deadline":"2h"`, moved["deadline_set"]), 409, "plan")
		if !strings.Contains(fmt.Sprint(e["problem"]), "compensated") {
			t.Errorf("%v", e)
		}
		if a := l.good(ask, "tripper", "plan.deadline", body); a["state"] != "compensated" ||
			a["deadline_at"] != moved["deadline_at"] {
			t.Errorf("%v, and moved %v", a, moved)
		}
		if got := l.undos(p); len(got) != 1 {
			t.Errorf("undone: %q", got)
		}
	})
}

// TestTheDeadlineOfAPartOfAPlanThatEndsStays: the ledger has the last word, and its refusal names the
// plan.
func TestTheDeadlineOfAPartOfAPlanThatEndsStays(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.hold = make(chan struct{})
	defer close(l.hold)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"root"}`)
	set := l.good(l.post, "tripper", "plan.begin", `{"plan":"part","parent":"root"}`)["deadline_set"]
	l.good(l.post, "tripper", "plan.report", `{"plan":"part","action":"a","capability":"hotel.book","output":{"booking":"1"}}`)
	l.good(l.post, "tripper", "plan.report", `{"plan":"root","action":"a","capability":"hotel.book","output":{"booking":"1"}}`)
	l.good(l.post, "tripper", "plan.fail", `{"plan":"root","reason":"no"}`)
	e := l.refused(l.post, "tripper", "plan.deadline", deadline("part", `"deadline":"2h"`, set), 409, "plan")
	if e["stored"] != "nothing" || !strings.Contains(fmt.Sprint(e["problem"]), "part of it") {
		t.Errorf("%v", e)
	}
}
