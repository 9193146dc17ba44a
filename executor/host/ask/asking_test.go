package ask

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestNoUserTakesAllPlaces: whoever has many questions waiting leaves as many places to others, and
// gets its own back. So it is with the bytes of bodies.
func TestNoUserTakesAllPlaces(t *testing.T) {
	t.Parallel()
	a := &asking{gone: make(chan struct{})}
	take := func(user string, bytes int) (taken []*question, err error) {
		for {
			q, err := a.admit(user, bytes)
			if err != nil {
				return taken, err
			}
			taken = append(taken, q)
		}
	}
	first, err := take("a", 1)
	if len(first) != questionsMax/2 {
		t.Errorf("the first user takes %d places", len(first))
	}
	var refused *api.Problem
	if !errors.As(err, &refused) || refused.Field != "questions" || !refused.Again ||
		!strings.Contains(refused.Text, "5000 of this user are waiting, and 5000 places are left") {
		t.Errorf("%+v", err)
	}
	if second, _ := take("b", 1); len(second) != questionsMax/4 {
		t.Errorf("the second takes %d", len(second))
	}
	for _, q := range first {
		q.end()
	}
	big, err := take("c", questionsBytesMax/8)
	if len(big) != 4 || !strings.Contains(fmt.Sprint(err), "bytes of this user are waiting") {
		t.Errorf("one takes %d times an eighth of the bytes: %v", len(big), err)
	}
	if rest, _ := take("", 0); a.all.count != questionsMax || len(rest) == 0 {
		t.Errorf("%d wait", a.all.count)
	}
}

// TestUsersTakeTurnsAtThePlaces: one that asks much leaves a place, and has no more turns than others.
func TestUsersTakeTurnsAtThePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asking{gone: make(chan struct{})}
		answer := make(chan struct{})
		var order []string
		ask := func(user string) {
			q, err := a.admit(user, 0)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer q.end()
				q.work()
				order = append(order, user)
				<-answer
			}()
			synctest.Wait()
		}
		for range 6 {
			ask("a")
		}
		for _, user := range []string{"b", "c", "c", "c"} {
			ask(user)
		}
		if got := fmt.Sprint(order); got != "[a a b c]" {
			t.Errorf("at first: %s", got)
		}
		for range 10 {
			answer <- struct{}{}
			synctest.Wait()
			if a.all.atOnce > questionsAtOnce || a.all.atOnce > 0 && a.by["a"] != nil &&
				a.by["a"].atOnce > questionsAtOnce/2 {
				t.Errorf("%+v have places, %+v of them user a", a.all, a.by["a"])
			}
		}
		if got := fmt.Sprint(order); got != "[a a b c a c a c a a]" {
			t.Errorf("in all: %s", got)
		}
		if a.all.count != 0 || a.all.atOnce != 0 || len(a.by) != 0 || len(a.turns) != 0 {
			t.Errorf("left: %+v", a)
		}
	})
}

// TestAQuestionThatWaitsHasNoPlace, and those that have not begun are dropped when the host stops.
func TestAQuestionThatWaitsHasNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asking{gone: make(chan struct{})}
		var worked, left atomic.Int32
		goOn := make(chan struct{})
		for i := range 2 * questionsAtOnce {
			q, err := a.admit("", 0)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer q.end()
				defer func() {
					if recover() == (dropped{}) {
						left.Add(1)
					}
				}()
				q.work()
				if i < questionsAtOnce {
					q.rest()
					<-a.gone
				}
				worked.Add(1)
				<-goOn
				q.work()
			}()
		}
		synctest.Wait()
		late, _ := a.admit("", 0)
		go func() {
			defer late.end()
			defer func() {
				if recover() == (dropped{}) {
					left.Add(1)
				}
			}()
			late.work()
		}()
		synctest.Wait()
		if worked.Load() != questionsAtOnce {
			t.Errorf("%d work while as many wait", worked.Load())
		}
		closed := make(chan struct{})
		go func() { a.close(); close(closed) }()
		synctest.Wait()
		if q, err := a.admit("", 0); q != nil || err != nil || left.Load() != 1 {
			t.Errorf("%v, %v; %d are dropped", q, err, left.Load())
		}
		close(goOn)
		<-closed
		if worked.Load() != 2*questionsAtOnce || a.all.count != 0 {
			t.Errorf("%d have worked, left %+v", worked.Load(), a.all)
		}
	})
}

// TestAFloodOfQuestionsIsRefused: few of them are worked on, those that are too many are told at
// once, and those that have not begun do not hold up the host's end.
func TestAFloodOfQuestionsIsRefused(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoStreams: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	connect := func() *nats.Conn {
		conn, err := srv.Connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	db := openStore(t)
	looking, goOn := make(chan struct{}, 2*questionsMax), make(chan struct{})
	d := New(Config{Tenant: "t", Board: NewBoard((*observe.Meter)(nil)), DB: db, Shared: new(Shared), Conn: connect(),
		Meter: (*observe.Meter)(nil), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { looking <- struct{}{}; <-goOn; return time.Unix(0, 0) }})
	silence, err := d.Serve()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	agent := connect()
	inbox := agent.NewInbox()
	answers, err := agent.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for i := range questionsMax + 50 {
		verb := []string{api.HistoryVerb + "ag", api.PlanLs.Name}[i%2]
		if err := agent.PublishRequest(api.QuerySubject("t", verb), inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		m, err := answers.NextMsg(testenv.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var problem *api.Problem
		if err := api.DecodeAnswer(m.Data, new(api.HistoryAnswer)); !errors.As(err, &problem) || !problem.Again {
			t.Fatalf("%s", m.Data)
		}
	}
	for range questionsAtOnce {
		<-looking
	}
	ended := make(chan struct{})
	go func() { silence(); close(ended) }()
	<-d.Board.asking.gone
	close(goOn)
	<-ended
	if len(looking) != 0 {
		t.Errorf("%d more look at the state", len(looking))
	}
}
