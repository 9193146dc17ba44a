package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const patience = testenv.Patience

// wired is a worker on a server, and a connection that plays the executor.
type wired struct {
	*Worker
	t        *testing.T
	executor *nats.Conn
	store    *ledger.Memory
}

func wire(t *testing.T, change func(*Config)) *wired {
	t.Helper()
	users := testenv.Users(t, access.User{Name: "w1", Role: access.Worker, Tenant: "default",
		Capabilities: []string{">"}})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn := users.Connect(server.URL(), "w1")
	executor, err := server.Connect(nats.CustomInboxPrefix("reply.default"), nats.UseOldRequestStyle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(executor.Close)
	w := &wired{t: t, executor: executor, store: ledger.NewMemory("default", func() int64 { return 1 })}
	config := Config{Conn: conn, Tenant: "default", Name: "w1", Appender: w.store}
	if change != nil {
		change(&config)
	}
	w.Worker, err = New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *wired) handle(capability string, h Handler) {
	w.t.Helper()
	if err := w.Handle(capability, h); err != nil {
		w.t.Fatal(err)
	}
}

func command(key string) api.Command {
	return api.Command{
		Tenant: "default", Plan: "p1", Action: "a", Capability: "file.delete", Arguments: json.RawMessage(
			`{"path":"/tmp/a"}`),
		Key: key, Attempt: 1, Term: 3, TimeoutMs: patience.Milliseconds(),
	}
}

// send asks as the executor does and returns a channel with the answer.
func (w *wired) send(c api.Command) <-chan api.Reply {
	if c.Purpose == "" || c.Purpose == ledger.PurposeUndo {
		return w.sendTo("undo.default.file.delete", c)
	}
	return w.sendTo("ask.default.file.stat", c)
}

func (w *wired) sendTo(subject string, c api.Command) <-chan api.Reply {
	body, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.sendRaw(subject, body)
}

func (w *wired) sendRaw(subject string, body []byte) <-chan api.Reply {
	answers := make(chan api.Reply, 1)
	go func() {
		m, err := w.executor.Request(subject, body, patience)
		var r api.Reply
		if err == nil {
			err = json.Unmarshal(m.Data, &r)
		}
		if err != nil {
			r = api.Reply{Status: "no answer", Message: err.Error()}
		}
		answers <- r
	}()
	return answers
}

type coded struct{ error }

func (coded) Code() string { return "protected" }

func TestWhatAHandlersEndMeans(t *testing.T) {
	until := time.UnixMilli(1_900_000_000_000)
	for _, c := range []struct {
		name    string
		handler Handler
		want    api.Reply
	}{
		{"done", func(context.Context, api.Command) (Result, error) {
			return Result{Output: map[string]int{"n": 1}, ExternalRef: "r"}, nil
		}, api.Reply{Status: "done", Output: json.RawMessage(`{"n":1}`), ExternalRef: "r"}},
		{"failed", func(context.Context, api.Command) (Result, error) { return Result{}, errors.New("locked") },
			api.Reply{Status: "failed", Code: "error", Message: "locked"}},
		{"failed with a code", func(context.Context, api.Command) (Result, error) {
			return Result{},
				coded{errors.New("locked")}
		},
			api.Reply{Status: "failed", Code: "protected", Message: "locked"}},
		{"stop", func(context.Context, api.Command) (Result, error) {
			return Result{}, fmt.Errorf("cannot delete: %w", Stop(errors.New("protected branch")))
		}, api.Reply{Status: "stop", Code: "stop", Message: "cannot delete: protected branch"}},
		{"stop with a code", func(context.Context, api.Command) (Result, error) {
			return Result{}, Stop(coded{errors.New("protected branch")})
		}, api.Reply{Status: "stop", Code: "protected", Message: "protected branch"}},
		{"changed", func(context.Context, api.Command) (Result, error) {
			return Result{}, fmt.Errorf("cannot restore: %w", Changed(map[string]string{"etag": "e2"}, errors.New("412")))
		}, api.Reply{Status: "changed", Code: "changed", Message: "cannot restore: 412", Output: json.RawMessage(`{"etag":"e2"}`)}},
		{"working", func(context.Context, api.Command) (Result, error) { return Result{}, Working(until) },
			api.Reply{Status: "working", UntilMs: until.UnixMilli()}},
		{"working, no one knows until when", func(context.Context, api.Command) (Result, error) {
			return Result{}, Working(time.Time{})
		}, api.Reply{Status: "working"}},
		{"panic", func(context.Context, api.Command) (Result, error) { panic("boom") },
			api.Reply{Status: "failed", Code: "panic", Message: "boom"}},
		{"ended goroutine", func(context.Context, api.Command) (Result, error) { runtime.Goexit(); return Result{}, nil },
			api.Reply{Status: "failed", Code: "panic", Message: "the handler ended its goroutine"}},
		{"output too large", func(context.Context, api.Command) (Result, error) {
			return Result{Output: strings.Repeat("x", OutputMax)}, nil
		}, api.Reply{Status: "done", Message: fmt.Sprintf("output left out: %d bytes, at most %d", OutputMax+2, OutputMax)}},
		{"output no JSON", func(context.Context, api.Command) (Result, error) { return Result{Output: func() {}}, nil },
			api.Reply{Status: "done", Message: "output left out: json: unsupported type: func()"}},
		{"text too long", func(context.Context, api.Command) (Result, error) {
			return Result{}, errors.New(strings.Repeat("x", 2*ledger.TextMax))
		}, api.Reply{Status: "failed", Code: "error", Message: ledger.Text(strings.Repeat("x", 2*ledger.TextMax))}},
		{"text is no UTF-8", func(context.Context, api.Command) (Result, error) {
			return Result{}, errors.New("stderr: caf\xe9")
		}, api.Reply{Status: "failed", Code: "error", Message: "stderr: caf\uFFFD"}},
		{"output is no UTF-8", func(context.Context, api.Command) (Result, error) {
			return Result{Output: map[string]string{"file": "caf\xe9"}}, nil
		}, api.Reply{Status: "done", Message: `output left out: it has text that is no UTF-8, or half a surrogate pair at ["file"]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := wire(t, nil)
			w.handle("file.delete", c.handler)
			got := <-w.send(command("k1"))
			if got.Worker != "w1" {
				t.Errorf("worker %q", got.Worker)
			}
			got.Worker, got.WorkNs = "", 0
			if want := command("k1").Answer(c.want); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if got := <-w.send(command("k1")); got.Status != c.want.Status {
				t.Errorf("the next attempt is answered with %+v", got)
			}
		})
	}
}

// What delivers a staged act and is stopped in the middle has not failed: that would be tried again.
func TestADeliveryThatIsStoppedInTheMiddleIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		handler Handler
		want    string // of a delivery; an undo has failed, or stops
	}{
		"in doubt": {func(context.Context, api.Command) (Result, error) {
			return Result{}, fmt.Errorf("cannot send: %w", InDoubt(errors.New("502")))
		}, "in_doubt error cannot send: 502"},
		"out of time": {func(ctx context.Context, _ api.Command) (Result, error) {
			<-ctx.Done()
			return Result{}, fmt.Errorf("post: %w", ctx.Err())
		}, "in_doubt timeout post: context deadline exceeded"},
		"cancelled": {func(context.Context, api.Command) (Result, error) { return Result{}, context.Canceled },
			"in_doubt error context canceled"},
		"panic": {func(context.Context, api.Command) (Result, error) { panic("boom") },
			"in_doubt panic boom"},
		"ended goroutine": {func(context.Context, api.Command) (Result, error) {
			runtime.Goexit()
			return Result{}, nil
		}, "in_doubt panic the handler ended its goroutine"},
		"failed": {func(context.Context, api.Command) (Result, error) { return Result{}, errors.New("refused") },
			"failed error refused"},
		"never": {func(context.Context, api.Command) (Result, error) {
			return Result{}, Stop(context.DeadlineExceeded)
		}, "stop stop context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := wire(t, nil)
			w.handle("file.delete", c.handler)
			delivery := command("k1")
			delivery.Delivers, delivery.TimeoutMs = true, 50
			if r := <-w.send(delivery); strings.Join([]string{r.Status, r.Code, r.Message}, " ") != c.want {
				t.Errorf("a delivery is answered %+v, want %s", r, c.want)
			}
			undo := command("k2")
			undo.TimeoutMs = 50
			want := map[string]string{"in doubt": api.StatusInDoubt, "never": api.StatusStop}[name]
			if r := <-w.send(undo); r.Status != cmp.Or(want, api.StatusFailed) {
				t.Errorf("an undo is answered %+v", r)
			}
		})
	}
}

func TestTheHandlerGetsTheCommandAndItsTime(t *testing.T) {
	w := wire(t, nil)
	w.handle("file.delete", func(ctx context.Context, c api.Command) (Result, error) {
		if c.Key != "k1" || string(c.Arguments) != `{"path":"/tmp/a"}` || !c.BlindCleanup {
			t.Errorf("command %+v", c)
		}
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > 50*time.Millisecond {
			t.Errorf("%v left", left)
		}
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	c := command("k1")
	c.BlindCleanup, c.TimeoutMs = true, 50
	if r := <-w.send(c); r.Status != api.StatusFailed || r.Code != CodeTimeout {
		t.Errorf("answer %+v", r)
	}
}

func TestCommandsThatMustNotRunAreAnsweredAsFailed(t *testing.T) {
	for _, c := range []struct {
		code   string
		change func(*api.Command)
	}{
		{CodeWorkerVersion, func(c *api.Command) { c.WorkerVersion = "2.0" }},
		{CodeStaleTerm, func(c *api.Command) { c.Term = 2 }},
		{CodeBadCommand, func(c *api.Command) { c.Tenant = "other" }},
		{CodeBadCommand, func(c *api.Command) { c.Capability = "file.create" }},
		{CodeBadCommand, func(c *api.Command) { c.Key = "" }},
		{CodeBadCommand, func(c *api.Command) { c.Attempt = 0 }},
	} {
		w := wire(t, func(c *Config) { c.Version = "1.0" })
		ran := make(chan string, 10)
		w.handle("file.delete", func(_ context.Context, c api.Command) (Result, error) { ran <- c.Key; return Result{}, nil })
		good := command("first") // shows term 3
		good.WorkerVersion = "1.0"
		if r := <-w.send(good); r.Status != api.StatusDone {
			t.Fatalf("answer %+v", r)
		}
		bad := command("bad")
		c.change(&bad)
		if r := <-w.send(bad); r.Status != api.StatusFailed || r.Code != c.code || r.Message == "" {
			t.Errorf("answer %+v, want code %s", r, c.code)
		}
		if len(ran) != 1 {
			t.Errorf("%s: the handler ran", c.code)
		}
	}
	w := wire(t, nil)
	w.handle("file.delete", func(context.Context, api.Command) (Result, error) { t.Error("ran"); return Result{}, nil })
	if r := <-w.sendRaw("undo.default.file.delete", []byte("{")); r.Status != api.StatusFailed ||
		r.Code != CodeBadCommand {
		t.Errorf("answer %+v", r)
	}
}

// TestWhatCannotBeAnsweredIsNoCommand: an agent may have the answer to a request of its own sent to a
// worker, where it comes without a reply subject, and name one where a message has an effect.
func TestWhatCannotBeAnsweredIsNoCommand(t *testing.T) {
	w := wire(t, nil)
	ran := make(chan string, 10)
	w.handle("file.delete", func(_ context.Context, c api.Command) (Result, error) { ran <- c.Key; return Result{}, nil })
	heard, err := w.executor.SubscribeSync("saga.>")
	if err != nil {
		t.Fatal(err)
	}
	forged := command("forged")
	forged.Term = 1 << 40
	body, err := json.Marshal(forged)
	if err != nil {
		t.Fatal(err)
	}
	// The worker may publish records of its own: only it can tell one from an answer.
	for _, reply := range []string{"", "saga.default.worker.w1", "undo.default.file.delete", "notice.default.a1.p"} {
		m := &nats.Msg{Subject: "undo.default.file.delete", Reply: reply, Data: body}
		if err := w.executor.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if answer := <-w.send(command("k1")); answer.Status != api.StatusDone {
		t.Errorf("%+v", answer) // their term is not its worker's
	}
	if err := w.Close(t.Context()); err != nil { // what it has to say has left
		t.Fatal(err)
	}
	if err := w.executor.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := heard.Pending(); n != 0 || err != nil {
		t.Errorf("%d answers where records are appended, %v", n, err)
	}
	close(ran)
	for key := range ran {
		if key != "k1" {
			t.Errorf("%s was carried out", key)
		}
	}
}

func TestTheTermIsSharedByAllCapabilities(t *testing.T) {
	w := wire(t, nil)
	for _, capability := range []string{"file.delete", "mail.correct"} {
		w.handle(capability, func(context.Context, api.Command) (Result, error) { return Result{}, nil })
	}
	c := command("k1")
	c.Capability, c.Term = "mail.correct", 9
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if r := <-w.sendRaw("undo.default.mail.correct", body); r.Status != api.StatusDone {
		t.Fatalf("answer %+v", r)
	}
	if r := <-w.send(command("k2")); r.Code != CodeStaleTerm {
		t.Errorf("answer %+v", r)
	}
}

func TestS21AttemptsThatOverlapRunOnce(t *testing.T) {
	w := wire(t, nil)
	started, finish := make(chan uint32, 10), make(chan struct{})
	w.handle("file.delete", func(_ context.Context, c api.Command) (Result, error) {
		started <- c.Attempt
		<-finish
		return Result{ExternalRef: "r"}, nil
	})
	first := w.send(command("k1"))
	<-started
	again := command("k1")
	again.Attempt = 2
	second := w.send(again)
	for taken := 0; taken < 2; <-time.After(time.Millisecond) { // until the second is taken in
		w.mu.Lock()
		taken = len(w.flights["k1"].waiting) + len(w.flights["k1"].behind)
		w.mu.Unlock()
	}
	other := w.send(command("k2")) // of another key: it runs beside
	<-started
	close(finish)
	for i, answer := range []<-chan api.Reply{first, second, other} {
		r := <-answer
		if r.Status != api.StatusDone || r.ExternalRef != "r" {
			t.Errorf("answer %d: %+v", i, r)
		}
		want := []api.Command{command("k1"), again, command("k2")}[i]
		if err := want.CheckReply(r); err != nil {
			t.Errorf("answer %d: %v", i, err)
		}
	}
	if n := len(started); n > 0 {
		t.Errorf("%d further runs", n)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	w := wire(t, func(c *Config) { c.Concurrency = 2 })
	var mu sync.Mutex
	running, most := 0, 0
	w.handle("file.delete", func(context.Context, api.Command) (Result, error) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		running--
		mu.Unlock()
		return Result{}, nil
	})
	var answers []<-chan api.Reply
	for i := range 50 {
		answers = append(answers, w.send(command(fmt.Sprint("k", i))))
	}
	for _, answer := range answers {
		if r := <-answer; r.Status != api.StatusDone {
			t.Errorf("answer %+v", r)
		}
	}
	if most > 2 {
		t.Errorf("%d handlers ran at once", most)
	}
}

func TestOfTwoWorkersOneGetsACommand(t *testing.T) {
	w := wire(t, nil)
	other, err := New(Config{Conn: w.executor, Tenant: "default", Name: "w2", Appender: w.store})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan string, 100)
	handler := func(_ context.Context, c api.Command) (Result, error) { ran <- c.Key; return Result{}, nil }
	w.handle("file.delete", handler)
	if err := other.Handle("file.delete", handler); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if r := <-w.send(command(fmt.Sprint("k", i))); r.Status != api.StatusDone {
			t.Errorf("answer %+v", r)
		}
	}
	if len(ran) != 20 {
		t.Errorf("%d runs of 20 commands", len(ran))
	}
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseAnswersWhatItHasAndTakesNoMore(t *testing.T) {
	w := wire(t, nil)
	started, finish := make(chan struct{}), make(chan struct{})
	w.handle("file.delete", func(context.Context, api.Command) (Result, error) {
		close(started)
		<-finish
		return Result{}, nil
	})
	answer := w.send(command("k1"))
	<-started
	closed := make(chan error, 1)
	go func() { closed <- w.Close(t.Context()) }()
	close(finish)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if r := <-answer; r.Status != api.StatusDone {
		t.Errorf("answer %+v", r)
	}
	if r := <-w.send(command("k2")); r.Status != "no answer" || !strings.Contains(r.Message, "no responders") {
		t.Errorf("answer %+v after Close", r)
	}
	if err := w.Handle("other", func(context.Context, api.Command) (Result, error) { return Result{}, nil }); err == nil {
		t.Error("a closed worker serves")
	}
	if err := w.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestCloseByForceCancelsHandlers(t *testing.T) {
	w := wire(t, nil)
	started := make(chan struct{})
	w.handle("file.delete", func(ctx context.Context, _ api.Command) (Result, error) {
		close(started)
		<-ctx.Done()
		return Result{}, ctx.Err()
	})
	answer := w.send(command("k1"))
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r := <-answer; r.Status != api.StatusFailed {
		t.Errorf("answer %+v", r)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	w := wire(t, nil)
	for _, c := range []struct {
		field  string
		config Config
	}{
		{"config.conn", Config{Tenant: "default", Name: "w"}},
		{"config.tenant", Config{Conn: w.executor, Tenant: ">", Name: "w"}},
		{"config.name", Config{Conn: w.executor, Tenant: "default", Name: "w.1"}},
		{"config.concurrency", Config{Conn: w.executor, Tenant: "default", Name: "w", Concurrency: -1}},
	} {
		_, err := New(c.config)
		wantRefused(t, err, c.field)
	}
	fine := func(context.Context, api.Command) (Result, error) { return Result{}, nil }
	wantRefused(t, w.Handle("file.>", fine), "capability")
	wantRefused(t, w.Handle("file.delete", nil), "handler")
	w.handle("file.delete", fine)
	wantRefused(t, w.Handle("file.delete", fine), "capability")
}

func wantRefused(t *testing.T, err error, field string) {
	t.Helper()
	var refused *ledger.Refused
	if !errors.As(err, &refused) || refused.Field != field {
		t.Errorf("got %v, want a refusal of %s", err, field)
	}
}

func TestReportIsARecordAndItsRetriesAreTheSame(t *testing.T) {
	for _, fault := range []ledger.Fault{ledger.FaultNone, ledger.FaultLost, ledger.FaultKept, ledger.FaultBusy} {
		w := wire(t, nil)
		tries := 0
		w.store.Fault = func(ledger.Append) ledger.Fault {
			if tries++; tries == 1 {
				return fault
			}
			return ledger.FaultNone
		}
		c := command("k1")
		c.Attempt, c.ReportToken = 2, "token"
		if err := w.Report(t.Context(), c, Result{Output: 1, ExternalRef: "r"}, nil); err != nil {
			t.Fatal(err)
		}
		head, err := w.store.Head(t.Context())
		if err != nil || head.Last != 1 {
			t.Fatalf("head %+v, %v", head, err)
		}
		m, err := w.store.Get(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil || entries[0].Err != nil {
			t.Fatal(err, entries[0].Err)
		}
		r := entries[0].Record
		if d := r.GetCompensationReported(); m.Subject != "saga.default.worker.w1" || r.Plan != "p1" || r.Action != "a" ||
			d.Attempt != 2 || d.Key != "k1" || d.Token != "token" ||
			d.Answer != pb.Answer_ANSWER_DONE || d.ExternalRef != "r" || string(r.Payload.Output) != "1" {
			t.Errorf("record %v on %s", r, m.Subject)
		}
	}
}

func TestProgressIsARecordAndAtMostOneInAWhile(t *testing.T) {
	w := wire(t, nil)
	c := command("k1")
	c.Attempt, c.ReportToken, c.Purpose = 2, "token", ledger.PurposeUndo
	until := time.Unix(1_800_000_000, 5)
	for _, note := range []string{"40 of 100" + strings.Repeat("x", ledger.TextMax), "41 of 100"} {
		if err := w.Progress(t.Context(), c, note, until); err != nil {
			t.Fatal(err)
		}
	}
	other := command("k2")
	other.Purpose, other.Arguments, other.Opened = c.Purpose, json.RawMessage(`{"card":"4000&1234"}`), []string{"/card"}
	if err := w.Progress(t.Context(), other, "of 4000&1234", time.Time{}); err != nil {
		t.Fatal(err)
	}
	head, err := w.store.Head(t.Context())
	if err != nil || head.Last != 2 {
		t.Fatalf("head %+v, %v: want one record of each undo", head, err)
	}
	for sequence, want := range map[uint64]*pb.CompensationProgressed{
		1: {Attempt: 2, Key: "k1", Token: "token", UntilNs: until.UnixNano(),
			Note: ledger.Text("40 of 100" + strings.Repeat("x", ledger.TextMax))},
		2: {Attempt: other.Attempt, Key: "k2", Note: "of [sealed]"},
	} {
		m, err := w.store.Get(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil || entries[0].Err != nil {
			t.Fatal(err, entries[0].Err)
		}
		if r := entries[0].Record; !proto.Equal(r.GetCompensationProgressed(), want) || r.Plan != "p1" || r.Action != "a" {
			t.Errorf("record %v, want %v", r, want)
		}
	}
	if !w.maySay("k1", time.Now().Add(ProgressEvery)) || len(w.said) != 1 {
		t.Errorf("after a while %d are remembered", len(w.said))
	}
	foreign, question := c, c
	foreign.Tenant, question.Purpose = "other", api.PurposeProbe
	wantRefused(t, w.Progress(t.Context(), foreign, "", until), "command.tenant")
	wantRefused(t, w.Progress(t.Context(), question, "", until), "command.purpose")
	wantRefused(t, w.Progress(t.Context(), c, "", time.Unix(-1, 0)), "until")
}

func TestAReportRepeatsNothingThatWasSealed(t *testing.T) {
	w := wire(t, nil)
	c := command("k1")
	c.Arguments, c.Opened = json.RawMessage(
		`{"booking":{"id":"bk-1234","amount":120000,"card":"4000&1234","pin":987654}}`),
		[]string{"/booking/card", "/booking/pin", "/none"}
	for _, example := range []struct {
		name                 string
		result               Result
		problem              error
		message, ref, output string
	}{
		{"what is not sealed stays", Result{Output: map[string]any{"of": "bk-1234", "n": 120000},
			ExternalRef: "refund of bk-1234"}, nil, "", "refund of bk-1234", `{"n":120000,"of":"bk-1234"}`},
		{"texts", Result{Output: map[string]string{"of": "4000&1234"}, ExternalRef: "120000 to 4000&1234"}, nil, "",
			"120000 to [sealed]", `{"of":"[sealed]"}`},
		{"a number", Result{Output: map[string]int{"pin": 987654}}, nil, "output left out: it repeats what was sealed", "",
			""},
		{"an error", Result{}, errors.New("no such card: 4000&1234"), "no such card: [sealed]", "", ""},
		{"across the end", Result{}, errors.New(strings.Repeat("x", ledger.TextMax-4) + "4000&1234"),
			ledger.Text(strings.Repeat("x", ledger.TextMax-4) + "[sealed]"), "", ""},
	} {
		r, err := w.reported(c, example.result, example.problem)
		if d := r.GetCompensationReported(); err != nil || d.Message != example.message || d.ExternalRef != example.ref ||
			string(r.GetPayload().GetOutput()) != example.output {
			t.Errorf("%s: %v, %v", example.name, r, err)
		}
	}
}

func TestReportSaysHowTheUndoEnded(t *testing.T) {
	w := wire(t, nil)
	for problem, want := range map[error]pb.Answer{errors.New("locked"): pb.Answer_ANSWER_FAILED,
		Stop(errors.New("gone for good")):    pb.Answer_ANSWER_STOP,
		Changed(nil, errors.New("not mine")): pb.Answer_ANSWER_CHANGED} {
		r, err := w.reported(command("k1"), Result{}, problem)
		if err != nil || r.GetCompensationReported().Answer != want ||
			r.GetCompensationReported().Message != problem.Error() {
			t.Errorf("%v: %v, %v", problem, r, err)
		}
	}
	wantRefused(t, w.Report(t.Context(), command("k1"), Result{}, Working(time.Now())), "problem")
	foreign := command("k1")
	foreign.Tenant = "other"
	wantRefused(t, w.Report(t.Context(), foreign, Result{}, nil), "command.tenant")
	w.store.Fault = func(ledger.Append) ledger.Fault { return ledger.FaultRefused }
	wantRefused(t, w.Report(t.Context(), command("k1"), Result{}, nil), "stream")
	w.store.Fault = func(ledger.Append) ledger.Fault { return ledger.FaultLost }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := w.Report(ctx, command("k1"), Result{}, nil); !errors.Is(err, ledger.ErrInDoubt) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
