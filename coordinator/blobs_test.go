package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// replaces is a contract whose before-image is the content of a file, as a blob. Whatever goes
// wrong means undone to it, as its author has it.
func replaces() contract.Contract {
	return contract.Contract{Capability: "file.replace", Class: contract.Compensable,
		Before: &contract.Before{Call: "file.read", With: map[string]any{"path": "=input.path"}},
		Inverse: &contract.Inverse{Call: "file.restore", Done: "true", With: map[string]any{
			"path": "=input.path", "content": "=before.content"}}}
}

// content is what no two chunks of are the same.
func content(size int) []byte {
	out := make([]byte, 0, size+16)
	for i := 0; len(out) < size; i++ {
		out = fmt.Appendf(out, "%d,", i*i)
	}
	return out[:size]
}

// restores has the worker serve the questions and undos of replaces.
func (l *live) restores() {
	l.t.Helper()
	blobs := l.work.Blobs()
	err := l.work.Answer("file.read", func(ctx context.Context, c api.Command) (a worker.Answer, err error) {
		f, err := os.Open(pathOf(c))
		if err != nil {
			return a, err
		}
		defer func() { _ = f.Close() }()
		ref, err := blobs.Put(ctx, blob.Value{Plan: c.Plan, From: f, Type: "text/plain"})
		return worker.Answer{Output: map[string]any{"content": ref}}, err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.undo("file.restore", func(ctx context.Context, c api.Command) (worker.Result, error) {
		var arguments struct{ Content blob.Ref }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return worker.Result{}, err
		}
		f, err := os.Create(pathOf(c))
		if err != nil {
			return worker.Result{}, err
		}
		return worker.Result{}, errors.Join(blobs.Copy(ctx, f, arguments.Content), f.Close())
	})
}

func pathOf(c api.Command) string {
	var arguments struct{ Path string }
	_ = json.Unmarshal(c.Arguments, &arguments)
	return arguments.Path
}

func overwrite(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
	var input struct{ Path string }
	if err := json.Unmarshal(call.Input, &input); err != nil {
		return coordinator.Outcome{}, err
	}
	return coordinator.Outcome{}, os.WriteFile(input.Path, []byte("overwritten"), 0o600)
}

// TestFilesOfAnySizeAreRestoredFromBlobs: byte for byte, and neither the ledger nor the store has
// a part of them in the clear.
func TestFilesOfAnySizeAreRestoredFromBlobs(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{replaces()}})
	l.restores()
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	want := map[string][]byte{}
	for _, size := range []int{0, 1, 256 << 10, 256<<10 + 1, 3 << 20} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(size))
		want[path] = content(size)
		if err := os.WriteFile(path, want[path], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Do(t.Context(), coordinator.Action{Capability: "file.replace",
			Input: map[string]any{"path": path}}, overwrite); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateCompensated)
	for path, before := range want {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, before) {
			t.Errorf("%s: %d bytes, want %d; %v", path, len(got), len(before), err)
		}
	}
	for _, r := range l.keeps(t) {
		if strings.Contains(r.String(), "2500,2601,2704") {
			t.Errorf("the ledger has the content: %v", r)
		}
	}
}

// TestAnUndoWhoseBlobIsMissingIsItsOwners, whatever its contract takes for done: one that was never
// stored, one that lost a chunk, one of another plan, and one whose plan was erased.
func TestAnUndoWhoseBlobIsMissingIsItsOwners(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "file.replace",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.restore", Done: "true",
			With: map[string]any{"path": "=input.path", "content": "=output.content"}}}}})
	l.undo("file.restore", func(context.Context, api.Command) (worker.Result, error) {
		t.Error("the undo was sent")
		return worker.Result{}, nil
	})
	other := l.begin(coordinator.PlanSpec{ID: "other"})
	foreign, err := other.PutBlob(t.Context(), strings.NewReader("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	store, err := jetstream.FindBlobs(t.Context(), jetstream.Config{Conn: l.root, Tenant: "default"})
	if err != nil || store == nil {
		t.Fatal(store, err)
	}
	for plan, says := range map[string]string{"never": "not in the store", "chunk": "chunk 0",
		"foreign": "output.content is not there", "none": "output.content is not there",
		"erased": "destroyed", "shorter": "has 1 bytes"} {
		p := l.begin(coordinator.PlanSpec{ID: plan})
		ref, err := p.PutBlob(t.Context(), strings.NewReader("y"), "")
		if err != nil {
			t.Fatal(err)
		}
		switch plan {
		case "never":
			ref.Digest = strings.Repeat("0", 64)
		case "chunk":
			for entry, err := range store.All(t.Context(), plan, 0) {
				if entry.Digest != ref.Digest && (err != nil || store.Remove(t.Context(), entry) != nil) {
					t.Fatal("its chunk is not removed")
				}
			}
		case "foreign":
			ref = foreign
		case "shorter":
			ref.Bytes = 7
		}
		var output any = map[string]any{"content": ref}
		if plan == "none" {
			output = map[string]any{"content": map[string]any{"sagenbaum/blob/v1": ref.Plan + "/" + ref.Digest}}
		}
		_, err = p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.replace",
			Input: map[string]any{"path": "f"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: output}, nil
		})
		var refused *ledger.Refused
		if wrong := strings.Contains(says, "output"); wrong != errors.As(err, &refused) || !wrong && err != nil ||
			wrong && refused.Field != "outcome.output" {
			t.Errorf("%s: %v", plan, err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if plan == "erased" {
			l.append(ledger.Source{Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{Plan: plan,
				Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ana", Force: true}}})
		}
		if err := p.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		l.ends(p, ledger.StateQuarantined)
		if a := l.shown(plan).Actions[0]; !strings.Contains(a.Note+a.Failure, says) {
			t.Errorf("%s: note %q, failure %q", plan, a.Note, a.Failure)
		}
	}
}

// TestAHostWithoutAMasterKeyHasNoBlobs: none is stored, and an undo that takes one is its owner's,
// as no master key would open what has none.
func TestAHostWithoutAMasterKeyHasNoBlobs(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "file.replace",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.restore",
			With: map[string]any{"content": "=input.content"}}}}}, func(h *host.Config) {
		h.MasterKey, h.TenantKeysDir = nil, ""
	})
	l.undo("file.restore", func(context.Context, api.Command) (worker.Result, error) {
		t.Error("the undo was sent")
		return worker.Result{}, nil
	})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	const says = "this host has no master key"
	if _, err := p.PutBlob(t.Context(), strings.NewReader("x"), ""); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("it was stored: %v", err)
	}
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.replace",
		Input: map[string]any{"content": blob.Ref{Plan: "p", Digest: strings.Repeat("0", 64), Bytes: 1}}},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateQuarantined)
	if a := l.shown("p").Actions[0]; !strings.Contains(a.Note+a.Failure, says) {
		t.Errorf("note %q, failure %q", a.Note, a.Failure)
	}
}

// TestAHostRemovesWhatNoRecordNamesAndWhatWasErased, and nothing else.
func TestAHostRemovesWhatNoRecordNamesAndWhatWasErased(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{replaces()}}, func(h *host.Config) {
		h.BlobEvery, h.BlobGrace = 10*time.Millisecond, time.Millisecond
	})
	l.restores()
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content(300<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	loose, err := p.PutBlob(t.Context(), strings.NewReader("loose"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.replace",
		Input: map[string]any{"path": path}}, overwrite); err != nil {
		t.Fatal(err)
	}
	blobs, err := l.agent.Blobs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.About(t.Context(), loose); err != nil {
		t.Errorf("while its plan is open: %v", err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := jetstream.FindBlobs(t.Context(), jetstream.Config{Conn: l.root, Tenant: "default"})
	if err != nil || store == nil {
		t.Fatal(store, err)
	}
	left := func(want uint64) {
		t.Helper()
		l.eventually(fmt.Sprintf("%d entries", want), func() bool {
			entries, _, err := store.Room(t.Context())
			return err == nil && entries == want
		})
	}
	left(3) // two chunks and their manifest
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "root"}, &pb.Record{Plan: "p",
		Kind: &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{
			Reason: "returned", Actor: "ana"}}})
	l.eventually("it is undone", func() bool { return l.shown("p~1").State == ledger.StateCompensated })
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content(300<<10)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{Plan: "p",
		Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ana"}}})
	left(0)
}

func (l *live) eventually(what string, ok func() bool) {
	l.t.Helper()
	for by := time.Now().Add(testenv.Patience); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(by) {
			l.t.Fatalf("not in time: %s", what)
		}
	}
}

// TestBlobsThatCannotBeAreRefused by the name of the field.
func TestBlobsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p, other := l.begin(coordinator.PlanSpec{ID: "p"}), l.begin(coordinator.PlanSpec{ID: "other"})
	blobs, err := l.agent.Blobs()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.PutBlob(t.Context(), strings.NewReader("x"), "")
	if err != nil || p.Flush(t.Context()) != nil {
		t.Fatal(err)
	}
	stranger, err := blob.New(blob.Config{Conn: l.root, Tenant: "default", Role: blob.Agent, Name: "a2"})
	if err != nil {
		t.Fatal(err)
	}
	put := func(c *blob.Client, v blob.Value) func() error {
		return func() error { _, err := c.Put(t.Context(), v); return err }
	}
	var many []any
	for n := range 257 {
		many = append(many, blob.Ref{Plan: "p", Digest: fmt.Sprintf("%064x", n)})
	}
	do := func(input any) func() error {
		return func() error {
			_, err := p.Do(t.Context(), coordinator.Action{Capability: "file.write", Input: input},
				func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					t.Error("the forward was called")
					return coordinator.Outcome{}, nil
				})
			return err
		}
	}
	report := func(o coordinator.Outcome) func() error {
		return func() error {
			return p.Report(t.Context(), coordinator.Action{Capability: "file.write",
				Input: map[string]any{"path": "x"}}, o)
		}
	}
	for field, try := range map[string]func() error{
		"blob.bytes":  put(blobs, blob.Value{Plan: "p", From: io.LimitReader(zeros{}, blob.Max+1)}),
		"blob.sha256": put(blobs, blob.Value{Plan: "p", From: strings.NewReader("x"), SHA256: strings.Repeat("0", 64)}),
		"blob.from":   put(blobs, blob.Value{Plan: "p"}),
		"request.type": put(blobs, blob.Value{Plan: "p", From: strings.NewReader("x"),
			Type: strings.Repeat("t", 129)}),
		"request.plan":       put(stranger, blob.Value{Plan: "p", From: strings.NewReader("x")}),
		"action.input":       do(map[string]any{"path": foreign}),
		"action.input, many": do(map[string]any{"path": many}),
		"action.input, none": do(map[string]any{"path": map[string]any{"sagenbaum/blob/v1": "p/x"}}),
		"outcome.before":     report(coordinator.Outcome{Before: many}),
	} {
		var refused *ledger.Refused
		field, _, _ = strings.Cut(field, ",")
		if err := try(); !errors.As(err, &refused) || refused.Field != field || refused.Want == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := p.PutBlob(t.Context(), io.MultiReader(bytes.NewReader(content(300<<10)),
		iotest.ErrReader(os.ErrDeadlineExceeded)), ""); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an upload that was interrupted: %v", err)
	}
	if err := stranger.Copy(t.Context(), io.Discard, blob.Ref{Plan: foreign.Plan, Digest: foreign.Digest,
		Bytes: 1}); err == nil {
		t.Error("another agent reads it")
	}
}

// TestWhatEndedPlansReferToIsKept: in inputs and outputs, and where they are sealed.
func TestWhatEndedPlansReferToIsKept(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "file.replace",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.restore"},
		Sensitive: []string{"input.secret"}}}}, func(h *host.Config) {
		h.BlobEvery, h.BlobGrace = 10*time.Millisecond, time.Millisecond
	})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	var refs []blob.Ref
	for _, value := range []string{"input", "secret", "output", "loose"} {
		ref, err := p.PutBlob(t.Context(), strings.NewReader(value), "")
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.replace",
		Input: map[string]any{"open": refs[0], "secret": map[string]any{"in": refs[1]}}},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: []any{refs[2]}}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	blobs, err := l.agent.Blobs()
	if err != nil {
		t.Fatal(err)
	}
	l.eventually("what nothing names is removed", func() bool {
		_, err := blobs.About(t.Context(), refs[3])
		return errors.Is(err, blob.ErrGone)
	})
	for i, ref := range refs[:3] {
		if err := blobs.Copy(t.Context(), io.Discard, ref); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestAWorkerThatFindsABlobMissingHasUndoneNothing, whatever the contract takes for done.
func TestAWorkerThatFindsABlobMissingHasUndoneNothing(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{Capability: "file.replace",
		Class: contract.Compensable, Inverse: &contract.Inverse{Call: "file.restore", Done: "true"}}}})
	l.undo("file.restore", func(context.Context, api.Command) (worker.Result, error) {
		return worker.Result{}, fmt.Errorf("it broke off: %w", blob.ErrGone)
	})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	if _, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "file.replace",
		Input: map[string]any{}}, nothing); err != nil {
		t.Fatal(err)
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(p, ledger.StateQuarantined)
	if undone := l.undoneActions(); undone != "a" {
		t.Errorf("undos of %q were sent", undone)
	}
}

// TestWhoMayStoreBlobs, and for which plan: an operator may read, and it is logged; a worker may
// store under the plan that it is told, which may be that of an undo asked for later.
func TestWhoMayStoreBlobs(t *testing.T) {
	t.Parallel()
	said := new(given) // its log
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}}, func(h *host.Config) {
		h.Logger = slog.New(slog.NewTextHandler(said, nil))
	})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	ref, err := p.PutBlob(t.Context(), strings.NewReader("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	as := func(role string) *blob.Client {
		c, err := blob.New(blob.Config{Conn: l.root, Tenant: "default", Role: role, Name: "ana"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	operator := as(blob.Operator)
	if _, err := operator.Put(t.Context(), blob.Value{Plan: "p", From: strings.NewReader("y")}); err == nil {
		t.Error("an operator stores")
	}
	if err := operator.Copy(t.Context(), io.Discard, ref); err != nil {
		t.Error(err)
	}
	if text := said.logged(); !strings.Contains(text, "revealed to an operator") ||
		!strings.Contains(text, "operator=ana") ||
		!strings.Contains(text, ref.Digest) {
		t.Errorf("no one is told that it was read:\n%s", text)
	}
	later, err := as(blob.Worker).Put(t.Context(), blob.Value{Plan: "p~1", From: strings.NewReader("x")})
	if err != nil || later != ref {
		t.Errorf("%+v, %v", later, err)
	}
	for _, plan := range []string{"p~", "p~x", "q~1"} {
		if _, err := as(blob.Worker).Put(t.Context(), blob.Value{Plan: plan, From: strings.NewReader("x")}); err == nil {
			t.Errorf("stored for %s", plan)
		}
	}
}

// TestAValueThatIsNotWhatItsOwnerSaidIsMissing.
func TestAValueThatIsNotWhatItsOwnerSaidIsMissing(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func(verb api.Call, m *nats.Msg) []byte {
		m.Subject = verb.Subject("default")
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		answer, err := l.root.RequestMsgWithContext(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Data
	}
	var chunk api.BlobChunkAnswer
	if err := json.Unmarshal(ask(api.BlobPut(blob.Agent, "a1").Call, &nats.Msg{Data: []byte("x"),
		Header: nats.Header{api.BlobHeader: {"p"}}}), &chunk); err != nil {
		t.Fatal(err)
	}
	end, _ := json.Marshal(api.BlobEndQuery{Plan: "p", Bytes: 1, SHA256: strings.Repeat("0", 64),
		Chunks: []string{chunk.Digest}})
	var ref blob.Ref
	if err := json.Unmarshal(ask(api.BlobEnd(blob.Agent, "a1").Call, &nats.Msg{Data: end}), &ref); err != nil {
		t.Fatal(err)
	}
	blobs, err := l.agent.Blobs()
	if err != nil {
		t.Fatal(err)
	}
	if err := blobs.Copy(t.Context(), io.Discard, ref); !errors.Is(err, blob.ErrGone) {
		t.Errorf("%v", err)
	}
}

// TestAWorkerLooksAgainForABlobThatIsNotThereYet, and an agent is told at once.
func TestAWorkerLooksAgainForABlobThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	var asked atomic.Int32
	sub, err := l.root.Subscribe(api.BlobSubject("other", "*", "*", "*"), func(m *nats.Msg) {
		problem := api.Problem{Text: "the blob is missing", Field: api.BlobGone, Again: true}
		if strings.HasPrefix(m.Subject, api.BlobSubject("other", blob.Worker, "erased", "")) {
			problem.Again = false
		}
		var answer any = api.BlobAnswer{Bytes: 7}
		if asked.Add(1) < 3 {
			answer = problem
		}
		data, err := json.Marshal(answer)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for _, c := range []struct {
		role, name string
		asked      int32
	}{{blob.Worker, "w1", 3}, {blob.Worker, "erased", 1}, {blob.Agent, "a1", 1}} {
		asked.Store(0)
		client, err := blob.New(blob.Config{Conn: l.root, Tenant: "other", Role: c.role, Name: c.name})
		if err != nil {
			t.Fatal(err)
		}
		about, err := client.About(t.Context(), blob.Ref{Plan: "p", Digest: strings.Repeat("0", 64)})
		if asked.Load() != c.asked || (c.asked == 3) != (err == nil && about.Bytes == 7) ||
			c.asked == 1 && !errors.Is(err, blob.ErrGone) {
			t.Errorf("%s %s: asked %d times, %v", c.role, c.name, asked.Load(), err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
