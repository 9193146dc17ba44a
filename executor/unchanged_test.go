package executor_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// shared is a world whose provider others write to: the forward of a has left the etag e1.
type shared struct {
	*schedule
	etag    string            // of what is there now; empty: the probe fails
	absent  bool              // it is not there
	replies []string          // of the undo, one after the other, then done
	asked   []string          // every call, in order
	told    func(*api.Reply)  // what else the worker of the undo says
	heard   func(api.Command) // of every call
}

const etagUnchanged = "probe.etag == output.etag"

func newShared(t *testing.T, unchanged string, etag string, replies ...string) *shared {
	w := &shared{schedule: newSchedule(t), etag: etag, replies: replies}
	w.worker = w.work
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p", pair("a", func(r *pb.ForwardRegistered, k *pb.CompensationRegistered) {
		bind("id", "input.id", "if_match", "probe.etag")(r, k)
		k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Attempts: 2}}
		k.Unchanged, k.Attempts = unchanged, 3
		if unchanged == "" {
			k.Bindings = k.Bindings[:1]
		}
	})...))
	return w
}

func (w *shared) work(k Command) *api.Reply {
	w.asked = append(w.asked, k.Purpose+" "+string(k.Arguments))
	if w.heard != nil {
		w.heard(k.Command)
	}
	if k.Purpose == api.PurposeProbe {
		presence := map[bool]string{true: "absent", false: "present"}[w.absent]
		if w.etag == "" {
			return &api.Reply{Status: api.StatusFailed, Code: "unreachable"}
		}
		return &api.Reply{Status: api.StatusDone,
			Output: fmt.Appendf(nil, `{"presence":%q,"etag":%q}`, presence, w.etag)}
	}
	said := "done"
	if len(w.replies) > 0 {
		said, w.replies = w.replies[0], w.replies[1:]
	}
	if said == "lost" {
		return nil
	}
	reply := &api.Reply{Status: said, Code: map[bool]string{true: "c"}[said != "done"]}
	if w.told != nil {
		w.told(reply)
	}
	return reply
}

// left has the forward of a complete, with the etag that it left.
func (w *shared) left(etag string) *shared {
	r := completed("a")
	r.Payload = &pb.Payload{Output: fmt.Appendf(nil, `{"etag":%q}`, etag)}
	w.must(w.agent("p", r))
	return w
}

func (w *shared) overwrite(by string) []Result {
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: by}, &pb.Record{
		Plan: "p", Action: "a", Kind: &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{Reason: "mine is right", Actor: by, Overwrite: true}}})
}

func (w *shared) wants(state string, calls ...string) {
	w.t.Helper()
	got := w.show("p")
	for i, c := range calls {
		purpose, etag, is := strings.Cut(c, "=")
		if calls[i] = purpose + " {}"; purpose == "undo" {
			value := cmp.Or(map[bool]string{true: "null"}[!is], `"`+etag+`"`)
			calls[i] = fmt.Sprintf(`undo {"id":"a","if_match":%s}`, value)
		}
	}
	if got.State != state || !slices.Equal(w.asked, calls) {
		w.t.Errorf("%s, called %q, want %s, %q: %s", got.State, w.asked, state, calls, got.Actions[0].Note)
	}
}

// TestWhatNobodyHasChangedIsUndone: the probe is asked right before each attempt, and what it has
// found is at hand for the call.
func TestWhatNobodyHasChangedIsUndone(t *testing.T) {
	w := newShared(t, etagUnchanged, "e1").left("e1")
	w.play("fail turn @1m turn")
	w.wants("compensated", "probe", "undo=e1")

	w = newShared(t, etagUnchanged, "e1", "failed").left("e1") // surely did nothing
	w.play("fail turn @1m turn @2m turn @3m turn")
	w.wants("compensated", "probe", "undo=e1", "probe", "undo=e1")

	w = newShared(t, etagUnchanged, "e1", "lost").left("e1") // one question is both
	w.play("fail turn @1m turn @2m turn @3m turn @4m turn")
	w.wants("compensated", "probe", "undo=e1", "probe", "probe", "undo=e1")
}

// TestWhatSomeoneElseHasChangedIsItsOwners: no undo goes out over it, at first or as a further
// attempt, and both states are in the record of the quarantine.
func TestWhatSomeoneElseHasChangedIsItsOwners(t *testing.T) {
	w := newShared(t, etagUnchanged, "e2").left("e1")
	w.play("fail turn @1m turn")
	w.wants("quarantined", "probe")
	var found *pb.Record
	for _, r := range w.effective() {
		if r.GetActionQuarantined() != nil {
			found = r
		}
	}
	if k := found.GetActionQuarantined(); !k.GetChanged() ||
		string(found.Payload.GetOutput()) != `{"etag":"e1"}` ||
		string(found.Payload.GetFound()) != `{"presence":"present","etag":"e2"}` {
		t.Errorf("%v", found)
	}
	if got := w.show("p").Actions[0]; !strings.Contains(got.Note, "changed by someone else") || !got.Changed ||
		got.Unchanged != etagUnchanged || string(got.Output) != `{"etag":"e1"}` ||
		string(got.Found) != `{"presence":"present","etag":"e2"}` {
		t.Errorf("%+v", got)
	}

	for _, first := range []string{"failed", "lost"} { // and while an attempt waits for the next
		w = newShared(t, etagUnchanged, "e1", first).left("e1")
		w.heard = func(k api.Command) {
			if k.Purpose == ledger.PurposeUndo {
				w.etag = "e2"
			}
		}
		w.play("fail turn @1m turn @2m turn @3m turn")
		w.wants("quarantined", "probe", "undo=e1", "probe")
	}
}

// TestNotKnowingIsNoYes: without an answer, or with one that the condition cannot read, the probe
// is asked again as often as the contract says, and then the owner.
func TestNotKnowingIsNoYes(t *testing.T) {
	for name, c := range map[string]struct{ unchanged, etag string }{
		"no answer":                 {etagUnchanged, ""},
		"nothing there to read":     {"probe.version == output.etag", "e1"},
		"neither true nor false":    {"has(probe.version) ? probe.version : null", "e1"},
		"what cannot be calculated": {"int(probe.etag) == 1", "e1"},
	} {
		w := newShared(t, c.unchanged, c.etag).left("e1")
		w.play("fail turn @1m turn @2m turn @3m turn")
		w.wants("quarantined", "probe", "probe")
		if note := w.show("p").Actions[0].Note; !strings.Contains(note, "not known") {
			t.Errorf("%s: %s", name, note)
		}
	}
	w := newShared(t, "probe.version == output.etag", "e1", "failed").left("e1")
	w.heard = func(k api.Command) {} // it is never undone unasked
	w.play("fail turn @1m turn @2m turn @3m turn")
	w.wants("quarantined", "probe", "probe")
}

// TestOneAnswerServesBothQuestions: a probe that looks for an effect in doubt says whether it was
// changed, too; what is not there is not compared, and is skipped.
func TestOneAnswerServesBothQuestions(t *testing.T) {
	const byInput = "probe.etag == input.id"
	w := newShared(t, byInput, "a")
	w.play("a? fail turn @1m turn")
	w.wants("compensated", "probe", "undo=a")

	w = newShared(t, byInput, "b")
	w.play("a? fail turn @1m turn")
	w.wants("quarantined", "probe")

	w = newShared(t, "probe.version == 1", "b").left("e1")
	w.absent = true
	w.play("fail turn @1m turn")
	w.wants("failed", "probe")

	w = newShared(t, etagUnchanged, "e1", "failed").left("e1") // gone after an attempt: undone
	w.heard = func(k api.Command) { w.absent = w.absent || k.Purpose == ledger.PurposeUndo }
	w.play("fail turn @1m turn @2m turn")
	w.wants("compensated", "probe", "undo=e1", "probe")
}

// TestAWorkerSaysThatItFoundTheWorldChanged: where the provider refuses the write, the action is
// its owner's at once, with what the worker has found.
func TestAWorkerSaysThatItFoundTheWorldChanged(t *testing.T) {
	w := newShared(t, etagUnchanged, "e1", api.StatusChanged).left("e1")
	w.told = func(r *api.Reply) { r.Output = json.RawMessage(`{"etag":"e7"}`) }
	w.play("fail turn @1m turn @2m turn")
	w.wants("quarantined", "probe", "undo=e1")
	if note := w.show("p").Actions[0].Note; !strings.Contains(note, "as its worker says") {
		t.Error(note)
	}
	w.told = nil
	w.must(w.overwrite("ann")) // over what it has seen
	w.play("turn @3m turn")
	w.wants("compensated", "probe", "undo=e1", "undo=e7")
}

// TestTheOwnerAnswersWhatWasChanged: a retry asks the probe again; to overwrite is another answer,
// over what the owner was shown, and where nothing is compared it is refused.
func TestTheOwnerAnswersWhatWasChanged(t *testing.T) {
	w := newShared(t, etagUnchanged, "e2").left("e1")
	w.play("fail turn @1m turn retry:a turn @2m turn")
	w.wants("quarantined", "probe", "probe")
	w.etag = "e1" // put back
	w.play("retry:a turn @3m turn")
	w.wants("compensated", "probe", "probe", "probe", "undo=e1")

	w = newShared(t, etagUnchanged, "e2", "failed").left("e1")
	w.play("fail turn @1m turn")
	w.must(w.overwrite("ann"))
	w.play("turn @2m turn @3m turn")
	w.wants("compensated", "probe", "undo=e2", "undo=e2")

	w = newShared(t, etagUnchanged, "").left("e1") // nobody knows, and it is sent all the same
	w.play("fail turn @1m turn @2m turn")
	w.must(w.overwrite("ann"))
	w.play("turn @3m turn")
	w.wants("compensated", "probe", "probe", "undo")

	w = newShared(t, "", "e2", "stop").left("e1")
	w.play("fail turn @1m turn")
	if got := w.overwrite("ann")[0]; got.Verdict != Refused || !strings.Contains(got.Reason, "no unchanged") {
		t.Error(got)
	}
}

// TestEarlierHoldersCompareNothing: under a holder that does not know of the condition its pair is
// refused as a whole, as that holder's reader does, and so is an owner who wants to overwrite.
func TestEarlierHoldersCompareNothing(t *testing.T) {
	s := newSchedule(t)
	s.underHolder(ledger.UnchangedSince - 1)
	s.play("open !a:unchanged b b+ b=stop,done fail turn !overwrite:b retry:b turn")
	// that a was claimed, and refused, is its owner's
	if got := s.show("p"); len(got.Actions) != 1 || got.Actions[0].Undo != "compensated" || len(got.Orphans) != 1 {
		t.Errorf("%s: %v, %v", got.State, got.Actions, got.Orphans)
	}
}

// TestAReportOfALargeStateDoesNotStopTheTenant: what a worker says is there now is kept up to a
// bound, and what becomes of its report fits into a commit.
func TestAReportOfALargeStateDoesNotStopTheTenant(t *testing.T) {
	w := newShared(t, etagUnchanged, "e1", "working").left("e1")
	w.play("fail turn @1m")
	key := ""
	for _, r := range w.effective() {
		if k := r.GetCompensationDispatched(); k != nil {
			key = k.Key
		}
	}
	report := func(size int) *pb.Record {
		return &pb.Record{Plan: "p", Action: "a",
			Payload: &pb.Payload{Output: []byte(`"` + strings.Repeat("x", size) + `"`)},
			Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Attempt: 1,
				Key: key, Answer: pb.Answer_ANSWER_CHANGED, Code: "c"}}}
	}
	size := ledger.CommitSizeMax
	for ; ; size-- {
		if _, err := ledger.EncodeCommit([]*pb.Record{report(size)}); err == nil {
			break // the largest report that the stream takes
		}
	}
	got := w.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}, report(size))
	if got[0].Verdict != Effective {
		t.Fatalf("%+v", got)
	}
	records := w.state.Decide(Input{EpochNs: w.now, SizeMax: ledger.CommitSizeMax})
	if _, err := ledger.EncodeCommit(records); err != nil || len(records) == 0 {
		t.Errorf("%d records: %v", len(records), err)
	}
}

// TestWhatIsToBarAForwardIsComparedOnceSomethingWasFound: the worker has said that someone else has
// changed it, so it is there, though a probe had found nothing; another try by itself overwrites none
// of it.
func TestWhatIsToBarAForwardIsComparedOnceSomethingWasFound(t *testing.T) {
	const bars = "open a:unchanged+refused a? a.probe=absent,other a=changed,done fail turn @1m turn "
	s := newSchedule(t)
	s.underHolder(ledger.ComparedSince - 1)
	s.play(bars + "retry:a turn @3m turn")
	s.wantState("p", ledger.StateCompensated, "a=compensated") // by its rules
	s.wantRefolded()
	playAll(t, []scheduled{
		{"its owner has it tried again", bars + "retry:a turn @3m turn", "quarantined: a=quarantined []"},
		{"and undone over that", bars + "overwrite:a turn @3m turn", "compensated: a=compensated [a]"},
		{"nothing was found", "open a:unchanged+refused a? a.probe=absent,other a=fail,done fail turn @1m turn " +
			"turn @3m turn", "compensated: a=compensated [a]"},
	})
}
