package host

import (
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
)

// progress follows work that a session does before it can hold its tenant, and that takes
// long for a large ledger. It belongs to the actor's goroutine.
type progress struct {
	what    string
	began   time.Time // zero: nothing is under way
	said    time.Time // when it was logged last
	from    uint64    // sequence
	to      uint64    // last sequence
	records uint64    // folded or filled in before it began
}

// What can be under way.
const (
	foldingLedger = "folding the ledger"
	fillingTiles  = "filling the tiles in from the stream"
)

// underWay begins to follow work from a sequence to another one.
func (a *actor) underWay(what string, from, to, records uint64) {
	now := time.Now()
	a.progress = progress{what: what, began: now, said: now, from: from, to: to, records: records}
	a.progressed(from, records)
}

// progressed notes how far the work has come, and says so in the log every few seconds.
func (a *actor) progressed(at, records uint64) {
	p := &a.progress
	if p.began.IsZero() {
		return
	}
	now := time.Now()
	view := p.view(now, at, records)
	over, log := at >= p.to, now.Sub(p.said) >= a.host.progressEvery
	a.showProgress(&view)
	switch {
	case over:
		if now.Sub(p.began) >= a.host.progressEvery {
			a.log.Info("done "+p.what, "commits", at-p.from, "records", view.Records,
				"records_per_second", int(view.RecordsPer), "took", now.Sub(p.began).Round(time.Millisecond))
		}
		a.noProgress()
	case log:
		p.said = now
		a.log.Info(p.what, "at", at, "of", p.to, "percent", 100*(at-p.from)/(p.to-p.from), "records", view.Records,
			"records_per_second", int(view.RecordsPer), "left", time.Duration(view.LeftNs).Round(time.Second))
	}
}

// noProgress ends following, whatever was under way.
func (a *actor) noProgress() {
	a.progress = progress{}
	a.showProgress(nil)
}

func (a *actor) showProgress(v *executor.FoldingView) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.folding = v
}

// view is how far it has come at an instant.
func (p *progress) view(now time.Time, at, records uint64) executor.FoldingView {
	v := executor.FoldingView{
		What: p.what, From: p.from, At: at, To: p.to, Records: records - p.records, BeganNs: p.began.UnixNano(),
	}
	took := now.Sub(p.began)
	if at > p.from && took > 0 {
		v.RecordsPer = float64(v.Records) / took.Seconds()
		v.LeftNs = int64(float64(took) * float64(p.to-at) / float64(at-p.from))
	}
	return v
}
