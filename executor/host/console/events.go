package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	hostask "github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
)

// noEnd is of a visitor without a session, which cannot be ended.
var noEnd <-chan struct{}

// events streams what the fold of a tenant touches: of the plans that the page shows,
// or of all, until the session ends. A browser that reads too slowly is dropped; it comes back
// with the last sequence that it has seen, and gets an event at once if that is not the latest.
func (v *visit) events() error {
	as := v.r.URL.Query().Get("as")
	if as != "" && (v.session == nil || v.session.ID != as) {
		return failed(http.StatusUnauthorized, "Load the page again.", "the page's session has ended")
	}
	of, most, gone := "reader "+tries.Address(v.r).String(), streamsReaders, noEnd
	ctx := v.r.Context()
	if v.session != nil {
		of, most, gone = "user "+v.session.Name, streamsUser, v.session.Gone()
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, v.session.Ends)
		defer cancel()
	}
	status, ok := v.s.streams.begin(of, most)
	if !ok {
		v.w.Header().Set("Retry-After", "10")
		const hint = "Close some pages, or load this one again by hand."
		if status == http.StatusTooManyRequests {
			return failed(status, hint, "you follow this console with %d pages already", most)
		}
		return failed(status, hint, "%d pages follow this console already", streamsMax)
	}
	defer v.s.streams.end(of)
	watch, err := v.host.Watch(v.page.Tenant)
	if err != nil {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	defer watch.Close()
	return v.stream(ctx, gone, watch)
}

// stream sends what a watch hears of, until the context ends or gone is closed.
func (v *visit) stream(ctx context.Context, gone <-chan struct{}, watch *hostask.Watch) error {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{})
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no")
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(streamWrite))
		_, err := io.WriteString(v.w, text)
		return err == nil && control.Flush() == nil
	}
	pulse, err := v.host.Pulse(v.page.Tenant) // as the watch begins, not before
	if err != nil {
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	first := "retry: 1000\n\n"
	if v.seen() != pulse.Applied {
		first += event(hostask.Change{Pulse: pulse, All: true})
	}
	if !send(first) {
		return nil
	}
	beat := time.NewTicker(v.s.cfg.Beat)
	defer beat.Stop()
	plans := v.r.URL.Query()["plan"]
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			return nil
		case <-v.s.ctx.Done():
			return nil
		case <-v.host.gone:
			return nil
		case <-beat.C:
			if !send(": alive\n\n") {
				return nil
			}
		case <-watch.Ready():
			c := watch.Take()
			if about(c, plans) && !send(event(c)) || !v.pause(ctx, gone) {
				return nil
			}
		}
	}
}

// seen is the last sequence that the browser has heard of, or else that its page shows.
func (v *visit) seen() uint64 {
	for _, text := range []string{v.r.Header.Get("Last-Event-ID"), v.r.URL.Query().Get("seen")} {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// pause keeps a busy fold from sending more than a page can show.
func (v *visit) pause(ctx context.Context, gone <-chan struct{}) bool {
	t := time.NewTimer(streamPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-gone:
	case <-v.s.ctx.Done():
	case <-v.host.gone:
	}
	return false
}

// about reports whether a change touches what a page shows; no plans are all of them.
func about(c hostask.Change, plans []string) bool {
	return len(plans) == 0 || c.All ||
		slices.ContainsFunc(c.Plans, func(p string) bool { return slices.Contains(plans, p) })
}

// event is a change as the stream has it.
func event(c hostask.Change) string {
	data, err := json.Marshal(c)
	if err != nil {
		panic("console: cannot encode a change: " + err.Error())
	}
	return fmt.Sprintf("event: change\nid: %d\ndata: %s\n\n", c.Pulse.Applied, data)
}
