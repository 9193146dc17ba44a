package host

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// progress follows work that a session does before it can hold its tenant, and that takes
// long for a large ledger. One goroutine works; others look.
type progress struct {
	log     *slog.Logger
	every   time.Duration // between two lines of the log
	what    string
	began   time.Time // zero: nothing is under way
	said    time.Time // when it was logged last
	from    uint64    // sequence
	to      uint64    // last sequence
	records uint64    // folded or filled in before it began

	mu    sync.Mutex
	shown *api.Folding
}

// foldingLedger is what is under way while a session folds what came before it.
const foldingLedger = "folding the ledger"

// Begin begins to follow work from a sequence to another one.
func (p *progress) Begin(what string, from, to, records uint64) {
	now := time.Now()
	p.what, p.began, p.said, p.from, p.to, p.records = what, now, now, from, to, records
	p.At(from, records)
}

// At notes how far the work has come, and logs that every few seconds.
func (p *progress) At(at, records uint64) {
	if p.began.IsZero() {
		return
	}
	now := time.Now()
	shown := p.view(now, at, records)
	p.show(&shown)
	switch {
	case at >= p.to:
		if now.Sub(p.began) >= p.every {
			p.log.Info("done "+p.what, "commits", at-p.from, "records", shown.Records,
				"records_per_second", int(shown.RecordsPer), "took", now.Sub(p.began).Round(time.Millisecond))
		}
		p.end()
	case now.Sub(p.said) >= p.every:
		p.said = now
		p.log.Info(p.what, "at", at, "of", p.to, "percent", 100*(at-p.from)/(p.to-p.from), "records",
			shown.Records,
			"records_per_second", int(shown.RecordsPer), "left",
			time.Duration(shown.LeftNs).Round(time.Second))
	}
}

// end ends following, whatever was under way.
func (p *progress) end() {
	p.began = time.Time{}
	p.show(nil)
}

func (p *progress) show(v *api.Folding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = v
}

// folding is how far the work has come; nil: nothing is under way.
func (p *progress) folding() *api.Folding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// view is how far it has come at an instant.
func (p *progress) view(now time.Time, at, records uint64) api.Folding {
	v := api.Folding{
		What: p.what, From: p.from, At: at, To: p.to, Records: records - p.records,
		BeganNs: p.began.UnixNano(),
	}
	took := now.Sub(p.began)
	if at > p.from && took > 0 {
		v.RecordsPer = float64(v.Records) / took.Seconds()
		v.LeftNs = int64(float64(took) * float64(p.to-at) / float64(at-p.from))
	}
	return v
}
