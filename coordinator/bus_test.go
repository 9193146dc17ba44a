package coordinator

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
)

// flooded is a subject on which a few requests more wait than are answered at once.
type flooded struct {
	at      atomic.Int64
	entered chan struct{} // of each that is worked on
	gate    chan struct{} // lets one of them end
	answers chan *nats.Msg
	stop    func()
}

const floodedMore = 50

func flood(t *testing.T) *flooded {
	t.Helper()
	const all = answersAtOnce + floodedMore
	_, conn := served.NATS(t)
	f := &flooded{entered: make(chan struct{}, all), gate: make(chan struct{}), answers: make(chan *nats.Msg, all)}
	stop, err := natsBus{conn}.answer("yield.t.a.w", func(body []byte) []byte {
		if n := f.at.Add(1); n > answersAtOnce {
			t.Errorf("%d are worked on", n)
		}
		f.entered <- struct{}{}
		<-f.gate
		f.at.Add(-1)
		return body
	})
	if err == nil {
		_, err = conn.ChanSubscribe("yield.t.a.w.*", f.answers)
	}
	for i := range all {
		if err == nil {
			err = conn.PublishRequest("yield.t.a.w", fmt.Sprint("yield.t.a.w.", i), fmt.Append(nil, i))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	f.stop = stop
	for range answersAtOnce {
		<-f.entered
	}
	return f
}

// TestRequestsOfOtherProcessesAreAnsweredInTurn: each of them, and so many at once.
func TestRequestsOfOtherProcessesAreAnsweredInTurn(t *testing.T) {
	t.Parallel()
	f := flood(t)
	for range floodedMore {
		f.gate <- struct{}{}
		<-f.entered
	}
	close(f.gate)
	got := map[string]bool{}
	for range answersAtOnce + floodedMore {
		m := <-f.answers
		if got[m.Subject] = true; m.Subject != "yield.t.a.w."+string(m.Data) {
			t.Errorf("%s on %s", m.Data, m.Subject)
		}
	}
	if len(got) != answersAtOnce+floodedMore {
		t.Errorf("%d answers", len(got))
	}
}

// TestNothingWaitsForRequestsThatWait when no more are answered: they are not worked on.
func TestNothingWaitsForRequestsThatWait(t *testing.T) {
	t.Parallel()
	f := flood(t)
	f.stop()
	close(f.gate)
	for range answersAtOnce {
		<-f.answers
	}
	if n := len(f.entered) + len(f.answers); n > 2 { // one had its turn
		t.Errorf("%d more", n)
	}
}
