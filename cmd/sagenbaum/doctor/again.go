package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// What was wrong at the moment of a look may have been on its way to be well: a host takes over, a
// worker connects, a page is being taken, an answer came too late because the host had much to do.
// Who makes such a finding says so by mayPass, and examined looks again before it is told. What is
// counted upwards needs a target instead, or a host with much to do never gets there: ExamineFold.

const (
	// patience is how long it is looked again at what may pass, and how long what is in the ledger
	// may take to be folded.
	patience = 2 * time.Second
	// young is what has begun within this: it may still be on its way.
	young = 5 * time.Second
)

// mayPass marks a finding as one of a moment, where it is.
func (f Finding) mayPass(is bool) Finding {
	f.passing = is && f.wrong()
	return f
}

// wrong reports whether a finding is to be looked at.
func (f Finding) wrong() bool { return f.State != "ok" && f.State != "skip" }

// youngAt reports whether a moment, in unix ns, was just now.
func youngAt(ns int64, now time.Time) bool { return now.Sub(time.Unix(0, ns)) < young }

// noAnswer reports whether an error is that no answer came.
func noAnswer(err error) bool {
	var f *cli.Failure
	return errors.As(err, &f) && f.Code == cli.ExitNoServer
}

// examined looks until no finding is left that may pass, or for patience, and a second time in any
// case. All that it returns is of one look.
func examined(ctx context.Context, look func() []Finding) []Finding {
	findings, end := look(), time.Now().Add(patience)
	passes := func(f Finding) bool { return f.passing }
	pause := patience / 16
	for ; slices.ContainsFunc(findings, passes) && cli.Pause(ctx, pause); pause *= 2 {
		if findings = look(); !time.Now().Before(end) {
			break
		}
	}
	return findings
}
