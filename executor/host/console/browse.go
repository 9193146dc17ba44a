package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// openLedger is the tenant's ledger, and how far it goes now.
func (v *visit) openLedger(ctx context.Context) (ledger.Store, ledger.Head, error) {
	store, err := v.host.Ledger(v.page.Tenant)
	if err != nil {
		return nil, ledger.Head{}, failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		return nil, head, failed(http.StatusBadGateway, "", "cannot read the ledger: %v", err)
	}
	return store, head, nil
}

// ledger shows a page of commits, the latest first.
func (v *visit) ledger() error {
	ctx, cancel := context.WithTimeout(v.r.Context(), requestTime/2)
	defer cancel()
	store, head, err := v.openLedger(ctx)
	if err != nil {
		return err
	}
	body := web.Ledger{First: head.First, Last: head.Last, Until: head.Last}
	if text := v.r.URL.Query().Get("until"); text != "" {
		if body.Until, err = sequenceOf(text); err != nil {
			return err
		}
		body.Until = min(body.Until, head.Last)
	}
	body.From = max(head.First, max(body.Until, ledgerRows)-ledgerRows+1)
	if body.From > head.First {
		body.Older = body.From - 1
	}
	if body.Until < head.Last {
		body.Newer = min(head.Last, body.Until+ledgerRows)
	} else {
		v.live()
	}
	for m, err := range readable(ctx, store, body) {
		if err != nil {
			return failed(
				http.StatusBadGateway, "Look at the health page.", "cannot read the ledger: %v", err,
			)
		}
		rows, err := v.rows(m, false)
		if err != nil {
			return err
		}
		body.Rows = append(rows, body.Rows...)
		if m.Sequence >= body.Until {
			break
		}
	}
	if status, err := ask(v, api.TenantStatus, api.Nothing{}); err == nil {
		body.Copy = status.Status.Copy
	}
	return v.show("Ledger", "ledger", body)
}

// readable reads the commits of a page; none when there are none.
func readable(
	ctx context.Context, store ledger.Store, body web.Ledger,
) iter.Seq2[ledger.Message, error] {
	if body.Until < body.From {
		return func(func(ledger.Message, error) bool) {}
	}
	return store.Read(ctx, body.From)
}

// record shows one commit: its records in full, and what the second copy has of them.
func (v *visit) record() error {
	sequence, err := sequenceOf(v.r.PathValue("sequence"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), requestTime/2)
	defer cancel()
	store, head, err := v.openLedger(ctx)
	if err != nil {
		return err
	}
	if sequence > head.Last {
		return failed(http.StatusNotFound, "Look at the latest ones.", "the ledger ends at %d", head.Last)
	}
	m, err := store.Get(ctx, sequence)
	if err != nil {
		return failed(
			http.StatusBadGateway, "Look at the health page.", "cannot read sequence %d: %v", sequence, err,
		)
	}
	body := web.Commit{
		Sequence: sequence, StampNs: m.StampNs, Subject: m.Subject,
		Bytes: len(m.Data), Last: head.Last,
	}
	if body.Rows, err = v.rows(m, true); err != nil {
		return err
	}
	v.prove(&body, m)
	return v.show(fmt.Sprintf("Record %d", sequence), "ledger", body)
}

// rows are the records of a commit, the last first: in a list the first few of them, and
// how many there are; whole, all that a page shows, with everything they say.
func (v *visit) rows(m ledger.Message, whole bool) (rows []web.Record, err error) {
	entries, err := ledger.Decode(v.page.Tenant, m)
	if err != nil {
		return nil, failed(
			http.StatusBadGateway, "A newer version of sagenbaum reads it.", "cannot read sequence %d: %v",
			m.Sequence, err,
		)
	}
	most, all := recordsListed, len(entries)
	if whole {
		most = recordsShown
	}
	entries = entries[:min(all, most)]
	for _, e := range entries {
		row := web.Record{
			Address: ledger.FormatAddress(e.Address), Full: ledger.FormatFullAddress(e.Address),
			StampNs: m.StampNs,
			Class:   e.Source.Class.String(), Name: e.Source.Name,
		}
		if e.Err != nil {
			row.Problem = e.Err.Error()
		}
		if r := e.Record; r != nil {
			row.Kind, row.Plan, row.Action = ledger.KindOf(r).Name, r.Plan, r.Action
			row.Essence = web.Essence(r)
			if r.About != nil && r.About.Sequence != 0 {
				row.About = ledger.FormatAddress(r.About)
			}
			if r.Cause != nil && r.Cause.Sequence != 0 {
				row.Cause = ledger.FormatAddress(r.Cause)
			}
			if !whole {
				// its page has it
			} else if raw, err := protojson.Marshal(r); err == nil {
				row.JSON = raw
			}
		}
		rows = append(rows, row)
	}
	if all > most {
		rows = append(rows, web.Record{More: all - most, Sequence: m.Sequence})
	}
	slices.Reverse(rows)
	return rows, nil
}

// prove holds the records of a commit against the host's second copy of the ledger.
func (v *visit) prove(body *web.Commit, m ledger.Message) {
	entries, err := ledger.Decode(v.page.Tenant, m)
	if err != nil {
		return
	}
	body.Records = len(entries)
	refused, _ := ask(
		v, api.RefusedLs, api.ListQuery{AfterSequence: m.Sequence - 1, Limit: len(entries)},
	)
	c, err := v.host.Copied(v.page.Tenant, m.Sequence, min(len(entries), recordsShown))
	if err != nil {
		body.CopyProblem = err.Error()
	} else {
		body.Size, body.Root = c.Size, hex.EncodeToString(c.Root[:])
	}
	for i := range min(len(entries), recordsShown) {
		row, e := &body.Rows[len(body.Rows)-1-i], entries[i]
		switch {
		case err != nil || i >= len(c.Leaves):
			row.Proof = "missing"
		case bytes.Equal(c.Leaves[i][:], e.Address.Leaf):
			row.Proof, row.Leaf = "same", c.Index+uint64(i)
		default:
			row.Proof, row.Leaf = "differs", c.Index+uint64(i)
		}
		for _, r := range refused.Refused {
			if r.Sequence == m.Sequence && r.Index == e.Address.Index {
				row.Refused, row.Void = r.Reason, r.Void
			}
		}
	}
}
