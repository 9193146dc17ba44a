package blob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// Collect removes what nothing refers to, while holds says so, until ctx ends: all that belongs to
// an erased plan; and of a plan that has ended, or that the ledger does not have, what no record
// names and was not stored again for Grace. What an open plan has stays.
func (s *Store) Collect(ctx context.Context, holds func() bool) {
	if entries, err := s.opened(ctx, s.Find); entries != nil && err == nil {
		_, _ = s.look(ctx, entries) // or at the next look
	}
	for pause.For(ctx, s.Every) {
		if !holds() {
			continue
		}
		removed, err := s.collect(ctx, time.Now())
		if removed > 0 {
			s.Log.Info("blobs that nothing refers to were removed", "entries", removed)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("not all blobs could be looked at; it is done again", "error", err)
		}
	}
}

// seen is what one look at the store has of a plan.
type seen struct {
	last   uint64    // entry
	oldest time.Time // entry
}

// collect is one look at the store.
func (s *Store) collect(ctx context.Context, now time.Time) (removed int, err error) {
	entries, err := s.opened(ctx, s.Find)
	if entries == nil || err != nil {
		return 0, err
	}
	plans := map[string]*seen{}
	for entry, err := range entries.All(ctx, "") {
		if err != nil {
			return 0, err
		}
		p := plans[entry.Plan]
		if p == nil {
			p = &seen{oldest: entry.Stored}
			plans[entry.Plan] = p
		}
		p.last = entry.Sequence
	}
	for plan := range s.swept {
		if plans[plan] == nil {
			delete(s.swept, plan)
		}
	}
	for plan, p := range plans {
		n, problem := s.sweep(ctx, entries, plan, *p, now)
		if removed += n; problem != nil && err == nil {
			err = problem
		}
	}
	if _, problem := s.look(ctx, entries); err == nil {
		err = problem
	}
	return removed, err
}

// sweep removes what nothing refers to of one plan.
func (s *Store) sweep(ctx context.Context, entries Entries, plan string, p seen,
	now time.Time) (removed int, err error) {
	use, err := s.Use(plan)
	if err != nil {
		return 0, fmt.Errorf("cannot look at plan %s: %w", plan, err)
	}
	switch {
	case use.Erased:
	case use.Known && !use.Ended, now.Sub(p.oldest) < s.Grace, s.swept[plan] == p.last:
		return 0, nil
	}
	named := map[string]bool{}
	if !use.Erased {
		if err := s.mark(ctx, entries, plan, use, named); err != nil {
			return 0, err
		}
	}
	young := false
	var old []jetstream.BlobEntry
	for entry, err := range entries.All(ctx, plan) {
		switch {
		case err != nil:
			return 0, err
		case named[entry.Digest]:
		case !use.Erased && now.Sub(entry.Stored) < s.Grace:
			young = true
		default:
			old = append(old, entry)
		}
	}
	for _, entry := range old {
		if err := entries.Remove(ctx, entry); err != nil {
			return removed, err
		}
		removed++
	}
	if !young && !use.Erased {
		s.swept[plan] = p.last
	}
	return removed, nil
}

// mark finds what a plan refers to: manifests by records, chunks by manifests.
func (s *Store) mark(ctx context.Context, entries Entries, plan string, use Use,
	named map[string]bool) error {
	for _, document := range use.Named {
		for _, b := range seal.Blobs(document) {
			if b.Plan != plan || named[b.Digest] {
				continue
			}
			named[b.Digest] = true
			stored, err := entries.Get(ctx, plan, b.Digest)
			if errors.Is(err, jetstream.ErrNoBlob) {
				continue // what was in it cannot be read
			}
			var chunks []string
			if err == nil {
				chunks, err = seal.ManifestChunks(stored)
			}
			if err != nil { // of one that is damaged, too: another replica may have it whole
				return err
			}
			for _, digest := range chunks {
				named[digest] = true
			}
		}
	}
	return nil
}
