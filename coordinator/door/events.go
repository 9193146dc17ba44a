package door

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// events streams what becomes of a plan as server-sent events: "state" with a State, first as it
// is, then whenever it has changed; "notice" with what the executor tells the agent, an
// api.Notice. It ends with the plan.
func (w *Web) events(out http.ResponseWriter, r *http.Request) {
	who := Caller{Tenant: r.PathValue("tenant"), Name: r.PathValue("name")}
	plan := r.PathValue("plan")
	changed := w.changed()
	d, err := w.admit(out, r, who, "plan.wait")
	if err == nil && r.ContentLength != 0 {
		err = ledger.Refuse("body", "given", "none")
	}
	if err == nil && !d.cfg.Serves(who.Tenant) {
		err = ledger.Refuse("tenant", "it is not served here", "one that sagenbaum tenant ls lists")
	}
	if err == nil {
		_, err = d.historyOf(r.Context(), who, plan, 1)
	}
	if err == nil {
		err = w.streams.enter(who)
	}
	if err != nil {
		refuse(out, explain(err))
		return
	}
	defer w.streams.leave(who)
	guarded, _, stop := w.guarded(r, who, "plan.wait", changed)
	defer stop()
	w.follow(out, guarded, d, who, plan)
}

// follow writes the events of a plan, until the request ends.
func (w *Web) follow(out http.ResponseWriter, r *http.Request, d *Door, who Caller, plan string) {
	t, err := d.tenant(who.Tenant)
	if err != nil {
		refuse(out, explain(err))
		return
	}
	notices := make(chan *nats.Msg, 64)
	sub, err := t.conn.ChanSubscribe(api.NoticeSubject(who.Tenant, who.Name, plan), notices)
	if err != nil {
		refuse(out, explain(err))
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	h := out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close") // it keeps the deadline of the last write
	control := http.NewResponseController(out)
	var last []byte
	for end := time.Now().Add(streamTime); time.Now().Before(end); {
		s, err := d.stateOf(r.Context(), who, plan, 0)
		if err != nil {
			return // it may connect again
		}
		text, err := json.Marshal(s)
		if err != nil {
			return
		}
		writing(out)
		if string(text) != string(last) {
			last = text
			fmt.Fprintf(out, "event: state\ndata: %s\n\n", text)
		}
		if control.Flush() != nil || s.Ended {
			return
		}
		if !w.next(out, r, d, notices) { // what it has written is flushed with the state
			return
		}
	}
}

// writing bounds how long the next writes may take: a client that reads nothing would have the
// stream outlive its user.
func writing(out http.ResponseWriter) {
	_ = http.NewResponseController(out).SetWriteDeadline(time.Now().Add(streamWrite))
}

// next waits for a notice, or writes that there are none.
func (w *Web) next(out http.ResponseWriter, r *http.Request, d *Door,
	notices <-chan *nats.Msg) bool {
	pulse := time.NewTimer(w.pulse)
	defer pulse.Stop()
	select {
	case m := <-notices:
		var notice api.Notice
		// otherwise an answer, which a client has had sent here: see api.NoAnswer
		if m.Reply != "" && json.Unmarshal(m.Data, &notice) == nil {
			writing(out)
			fmt.Fprintf(out, "event: notice\ndata: %s\n\n", m.Data)
		}
	case <-pulse.C:
		writing(out)
		fmt.Fprint(out, ": nothing new\n\n")
	case <-r.Context().Done():
		return false
	case <-w.ctx.Done():
		return false
	case <-d.life.Done():
		return false
	}
	return true
}
