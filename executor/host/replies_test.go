package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// sentUndos takes every undo of a rig without an answer: a test answers by hand.
func (r *rig) sentUndos() <-chan *nats.Msg {
	r.t.Helper()
	sent := make(chan *nats.Msg, 16)
	if _, err := r.conn.Subscribe("undo.t.>", func(m *nats.Msg) { sent <- m }); err != nil {
		r.t.Fatal(err)
	}
	return sent
}

// refusedReplies is what status tells of them.
func (r *rig) refusedReplies() (count int, problem string) {
	r.t.Helper()
	var answer struct {
		Status struct {
			Refused struct {
				Count int `json:"count"`
				Last  struct {
					Problem    string `json:"problem"`
					Worker     string `json:"worker"`
					Capability string `json:"capability"`
				} `json:"last"`
			} `json:"refused_replies"`
		} `json:"status"`
	}
	if err := r.ask("status", struct{}{}, &answer); err != nil {
		r.t.Fatal(err)
	}
	last := answer.Status.Refused.Last
	return answer.Status.Refused.Count, strings.TrimSpace(last.Capability + " " + last.Worker + " " + last.Problem)
}

// TestACommandIsAnsweredByWhoRepeatsItsKeyAndAttempt: anything else on its reply subject
// is refused and counted, and the command stays unanswered.
func TestACommandIsAnsweredByWhoRepeatsItsKeyAndAttempt(t *testing.T) {
	r := newRig(t)
	r.host("a")
	sent := r.sentUndos()
	slow := charge()
	slow.Probe, slow.TimeoutNs = nil, int64(60e9)
	r.charged("p1", "ch_1", slow)
	m := <-sent
	var c api.Command
	if err := json.Unmarshal(m.Data, &c); err != nil {
		t.Fatal(err)
	}
	if shape := regexp.MustCompile(`^reply\.t\.[0-9a-f]{32}$`); !shape.MatchString(m.Reply) {
		t.Errorf("reply subject %q", m.Reply)
	}
	for _, body := range []string{
		`{"status":"done","worker":"old"}`,
		fmt.Sprintf(`{"status":"done","worker":"old","key":%q}`, c.Key),
		fmt.Sprintf(`{"status":"done","worker":"old","key":%q,"attempt":2}`, c.Key),
		`{"status":"done","worker":"old","key":"00000000000000000000000000000001","attempt":1}`,
	} {
		if err := m.Respond([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("the answers were refused", func() bool { n, _ := r.refusedReplies(); return n == 4 })
	if _, last := r.refusedReplies(); !strings.Contains(last, "charge.refund old refused: reply.key") {
		t.Errorf("the last refusal is %q", last)
	}
	if p := r.show("p1"); p.State != ledger.StateUnwinding {
		t.Fatalf("the plan is %s", p.State)
	}
	body := fmt.Sprintf(`{"status":"done","worker":"new","key":%q,"attempt":%d}`, c.Key, c.Attempt)
	if err := m.Respond([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if end := r.ended("p1"); end.State != ledger.StateCompensated {
		t.Errorf("the plan is %s", end.State)
	}
	if undos := r.undos("p1"); len(undos) != 1 || undos[0].Worker != "new" {
		t.Errorf("attempts %+v", undos)
	}
}

// TestTheAnswerToAnEarlierAttemptEndsNoLaterOne: it comes on a subject that nobody waits
// on any more.
func TestTheAnswerToAnEarlierAttemptEndsNoLaterOne(t *testing.T) {
	r := newRig(t)
	r.host("a")
	sent := r.sentUndos()
	quick := charge()
	quick.Probe, quick.TimeoutNs, quick.Attempts = nil, int64(50e6), 100
	r.charged("p1", "ch_1", quick)
	first, second := <-sent, <-sent
	if first.Reply == second.Reply {
		t.Fatalf("two attempts share the reply subject %s", first.Reply)
	}
	answer := func(on, of *nats.Msg, status string) {
		var c api.Command
		err := json.Unmarshal(of.Data, &c)
		body := fmt.Sprintf(`{"status":%q,"key":%q,"attempt":%d}`, status, c.Key, c.Attempt)
		if err := errors.Join(err, on.Respond([]byte(body))); err != nil {
			t.Error(err)
		}
	}
	answer(first, first, api.StatusStop)  // as it was asked, and too late
	answer(first, second, api.StatusStop) // as if it were the second's
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with over
		defer close(ended)
		for {
			select {
			case m := <-sent:
				answer(m, m, api.StatusDone)
			case <-over:
				return
			}
		}
	}()
	if end := r.ended("p1"); end.State != ledger.StateCompensated {
		t.Errorf("the plan is %s", end.State)
	}
	close(over)
	<-ended
}

// TestADoneUndoStaysDoneWhateverElseItSays: its answer counts, and status names what of it
// could not be read.
func TestADoneUndoStaysDoneWhateverElseItSays(t *testing.T) {
	r := newRig(t)
	r.host("a")
	sent := r.sentUndos()
	once := charge()
	once.Probe, once.Attempts, once.TimeoutNs = nil, 1, int64(60e9)
	r.charged("p1", "ch_1", once)
	m := <-sent
	var c api.Command
	if err := json.Unmarshal(m.Data, &c); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"key":%q,"attempt":%d.0,"status":"done","worker":"py","external_ref":481516,"code":404,`+
		`"work_ns":4.1e6,"message":["x"],"output":{"n":NaN}}`, c.Key, c.Attempt)
	if err := m.Respond([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if end := r.ended("p1"); end.State != ledger.StateCompensated {
		t.Errorf("the plan is %s", end.State)
	}
	if undos := r.undos("p1"); len(undos) != 1 || undos[0].Worker != "py" || undos[0].WorkNs != 4_100_000 {
		t.Errorf("attempts %+v", undos)
	}
	var answer api.StatusAnswer
	if err := r.ask("status", struct{}{}, &answer); err != nil {
		t.Fatal(err)
	}
	unread := answer.Status.UnreadFields
	if unread == nil || unread.Count != 2 || unread.Last.Worker != "py" || unread.Last.Capability != "charge.refund" ||
		!strings.Contains(unread.Last.Problem, "reply.output") || answer.Status.RefusedReplies != nil {
		t.Errorf("status tells %+v", unread)
	}
}
