package ledger

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func newLedgerShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "show SEQUENCE[.INDEX]|ADDRESS",
		Short: "Show the records of one commit whole, or one of them, and check its address",
		Long: `Show the records of one commit whole, or one of them, with every field. A
host serves it, as for 'ledger tail'. With an ADDRESS as plan show and plan why print
it, with or without the kind (lease_fired@14.0-0fd319a7), the record's leaf is checked: exit
code 2 when another record is there.`,
		Example: "  sagenbaum ledger show 14\n  sagenbaum ledger show 14.0-0fd319a7 -o json",
		Args:    cli.Exactly("SEQUENCE[.INDEX]|ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				ctx, cancel := c.Within(cmd.Context())
				defer cancel()
				m, err := c.Message(ctx, at.sequence)
				if err != nil {
					return cli.Failed("read the ledger", err)
				}
				entries, err := ledger.Decode(s.Tenant, m)
				if err != nil {
					return cli.Failed("read the ledger", err)
				}
				shown := 0
				for _, e := range entries {
					if !at.wants(e) {
						continue
					}
					shown++
					if err := showRecord(cmd, s, m, e); err != nil {
						return err
					}
				}
				if shown == 0 {
					return cli.Fail(cli.ExitFailed,
						fmt.Sprintf("sagenbaum ledger show %d", at.sequence),
						"no record at %s: commit %d has %s, and none of that address", args[0],
						at.sequence, cli.CountOf(len(entries), "record"))
				}
				return nil
			})
		},
	}
}

// showRecord prints one record whole: the lines of its JSON, where no table was asked
// for as data.
func showRecord(cmd *cobra.Command, s *cli.Settings, m ledger.Message, e ledger.Entry) error {
	line, err := tailLineOf(m, e)
	if err != nil {
		return err
	}
	if s.JSON() {
		return cli.PrintJSON(cmd.OutOrStdout(), line)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %s  %s\n",
		s.Pen(cmd).Bold(ledger.FormatFullAddress(e.Address)), line.Kind, cli.Moment(m.StampNs),
		cli.Printable(m.Subject))
	if line.Refused != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "  refused: %s\n", cli.Printable(line.Refused))
	}
	if len(line.Record) == 0 {
		return nil
	}
	var text strings.Builder
	if err := (&cli.YamlOut{Writer: &text}).Print(line.Record); err != nil {
		return err
	}
	for row := range strings.Lines(text.String()) {
		fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", cli.Printable(strings.TrimRight(row, "\n")))
	}
	return nil
}

// place is a message, or one record of it.
type place struct {
	sequence uint64
	address  string // "14.0" or "14.0-0fd319a7", as far as it was given; empty: the whole message
}

func parsePlace(text string) (place, error) {
	if _, at, ok := strings.Cut(text, "@"); ok {
		text = at
	}
	if sequence, err := strconv.ParseUint(text, 10, 64); err == nil && sequence > 0 {
		return place{sequence: sequence}, nil
	}
	sequence, index, one := strings.Cut(text, ".")
	if number, err := strconv.ParseUint(sequence, 10, 64); err == nil && number > 0 && one {
		if _, err := strconv.ParseUint(index, 10, 32); err == nil {
			return place{sequence: number, address: text + "-"}, nil
		}
	}
	at, err := ledger.ParseAddress(text)
	if err != nil {
		return place{}, cli.Fail(cli.ExitUsage,
			"sagenbaum ledger show 14, or an address as plan show has it: 14.0-0fd319a7",
			"%q is neither a sequence nor an address", text)
	}
	return place{sequence: at.Sequence, address: text}, nil
}

// wants reports whether a record is one that was asked for.
func (p place) wants(e ledger.Entry) bool {
	return strings.HasPrefix(ledger.FormatFullAddress(e.Address), p.address)
}
