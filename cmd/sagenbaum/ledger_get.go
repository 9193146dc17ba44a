package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func newLedgerGet(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "get SEQUENCE|ADDRESS",
		Short: "Print one message of the ledger, or one record of it, and check its address",
		Long: `Print the records of one message of the ledger, as ledger tail does. With an ADDRESS as
plan show and plan why have it, also behind a kind (lease_fired@14.0-0fd319a7), only that
record, and its leaf is checked: exit code 2 when another record is there.`,
		Example: "  sagenbaum ledger get 14\n  sagenbaum ledger get 14.0-0fd319a7 -o json",
		Args:    exactly("SEQUENCE|ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			ctx, cancel := c.within(cmd.Context())
			defer cancel()
			store, err := c.store(ctx)
			if err != nil {
				return failed("read the ledger", err)
			}
			m, err := store.Get(ctx, place.sequence)
			if err != nil {
				return failed("read the ledger", err)
			}
			t := tailer{out: cmd.OutOrStdout(), pen: s.pen(cmd), json: s.json(), tenant: s.tenant, only: &place}
			if err := t.message(m); err != nil {
				return failed("read the ledger", err)
			}
			if place.leaf != "" && !place.seen {
				return fail(exitFailed, "sagenbaum ledger get "+fmt.Sprint(place.sequence), "no record at %s: what stands at sequence %d has another leaf", args[0], place.sequence)
			}
			return nil
		},
	}
}

// place is a message, or one record of it.
type place struct {
	sequence uint64
	leaf     string // "14.0-0fd319a7" as far as it was given; empty: the whole message
	seen     bool
}

func parsePlace(text string) (place, error) {
	if _, at, ok := strings.Cut(text, "@"); ok {
		text = at
	}
	if sequence, err := strconv.ParseUint(text, 10, 64); err == nil && sequence > 0 {
		return place{sequence: sequence}, nil
	}
	at, err := ledger.ParseAddress(text)
	if err != nil {
		return place{}, fail(exitUsage, "sagenbaum ledger get 14, or an address as plan show has it: 14.0-0fd319a7", "%q is neither a sequence nor an address", text)
	}
	return place{sequence: at.Sequence, leaf: text}, nil
}

// wants reports whether a record is the one that was asked for.
func (p *place) wants(e ledger.Entry) bool {
	if p.leaf == "" {
		return true
	}
	if !strings.HasPrefix(ledger.FormatFullAddress(e.Address), p.leaf) {
		return false
	}
	p.seen = true
	return true
}
