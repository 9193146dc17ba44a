package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	for held := false; pause.For(ctx, s.Every); {
		was := held
		if held = holds(); !held {
			continue
		}
		if !was { // another host may have made the entries since; later ones are made here
			if _, err := s.opened(ctx, s.Find); err != nil {
				held = false
				continue
			}
		}
		removed, err := s.collect(ctx, time.Now())
		if errors.Is(err, jetstream.ErrNoBlobs) {
			held = false // they are looked for again
		}
		if removed > 0 {
			s.Log.Info("blobs that nothing refers to were removed", "entries", removed)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("not all blobs could be looked at; it is done again", "error", err)
		}
	}
}

// seen is what the store has of a plan, as far as it was looked at: when the oldest entry was
// stored that no record may name; zero: there is none.
type seen struct{ oldest time.Time }

// collect is one look at the store: at the entries that are new, and at the plans that have any.
// The first one reads all entries, for the server has them by blocks of its files.
func (s *Store) collect(ctx context.Context, now time.Time) (removed int, err error) {
	entries := s.made()
	if entries == nil {
		return 0, nil
	}
	if s.seenIn != entries { // others have sequences of their own
		s.seenIn, s.looked, s.plans = entries, 0, map[string]*seen{}
	}
	defer func() { s.lost(entries, err) }()
	for entry, err := range entries.All(ctx, "", s.looked+1) {
		if err != nil {
			return 0, err
		}
		s.saw(entry)
	}
	for plan, p := range s.plans {
		n, problem := s.sweep(ctx, entries, plan, p, now)
		if removed += n; problem != nil && err == nil {
			err = problem
		}
	}
	if _, problem := s.look(ctx, entries); err == nil {
		err = problem
	}
	return removed, err
}

func (s *Store) saw(entry jetstream.BlobEntry) {
	p := s.plans[entry.Plan]
	if p == nil {
		p = &seen{}
		s.plans[entry.Plan] = p
	}
	p.add(entry)
	s.looked = entry.Sequence
}

func (p *seen) add(entry jetstream.BlobEntry) {
	if p.oldest.IsZero() {
		p.oldest = entry.Stored
	}
}

// sweep removes what nothing refers to of one plan.
func (s *Store) sweep(ctx context.Context, entries Entries, plan string, p *seen,
	now time.Time) (removed int, err error) {
	state := s.State(plan)
	switch {
	case state.Erased:
	case state.Known && !state.Ended, p.oldest.IsZero(), now.Sub(p.oldest) < s.Grace:
		return 0, nil
	}
	named := map[string]bool{}
	if !state.Erased {
		if err := s.mark(ctx, entries, plan, named); err != nil {
			return 0, err
		}
	}
	var left seen
	some := false
	var old []jetstream.BlobEntry
	for entry, err := range entries.All(ctx, plan, 0) {
		switch {
		case err != nil:
			return 0, err
		case state.Erased:
			old = append(old, entry)
		case named[entry.Digest]:
			some = true
		case now.Sub(entry.Stored) < s.Grace:
			some = true
			left.add(entry)
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
	if *p = left; !some {
		delete(s.plans, plan)
	}
	return removed, nil
}

// mark finds what a plan refers to: manifests by records, chunks by manifests.
func (s *Store) mark(ctx context.Context, entries Entries, plan string,
	named map[string]bool) error {
	var texts []string
	err := s.Named(plan, func(document json.RawMessage) {
		texts = append(texts, seal.Blobs(document).Texts...)
	})
	if err != nil {
		return fmt.Errorf("cannot look at plan %s: %w", plan, err)
	}
	for _, text := range texts {
		of, digest, _ := strings.Cut(text, "/")
		if digest = strings.ToLower(digest); of != plan || named[digest] {
			continue
		}
		named[digest] = true
		if err := s.markChunks(ctx, entries, plan, digest, named); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) markChunks(ctx context.Context, entries Entries, plan, digest string,
	named map[string]bool) error {
	stored, err := entries.Get(ctx, plan, digest)
	if errors.Is(err, jetstream.ErrNoBlob) {
		return nil // what was in it cannot be read
	}
	if err != nil { // of one that is damaged, too: another replica may have it whole
		return err
	}
	chunks, err := seal.ManifestChunks(stored)
	if err != nil { // what is whole and no manifest names no chunks, whatever a record says
		return nil
	}
	for _, digest := range chunks {
		named[digest] = true
	}
	return nil
}
