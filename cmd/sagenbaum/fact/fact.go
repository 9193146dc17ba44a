// Package fact is `sagenbaum fact`: facts that conditions read.
package fact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum fact` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "fact",
		Short: "Read and write the facts of working memory",
		Example: `  sagenbaum fact put order/7 '{"status":"placed"}'
  sagenbaum fact get order/7
  sagenbaum fact history order/7`,
	}, newFactPut(s), cli.Watchable(s, newFactGet(s)), cli.Watchable(s, newFactLs(s)),
		newFactHistory(s))
}

// putting is what `fact put` was asked to do.
type putting struct {
	source, plan, action string
	retract              bool
}

func newFactPut(s *cli.Settings) *cobra.Command {
	var v putting
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "Assert a fact, or retract it",
		Long: `Assert a fact: its value is one JSON value. Every lease that reads it is asked at
once. With --retract the fact ends; its key stays as a tombstone. --plan and
--action name the action whose effect it is; the fact then refers to that action
by address, and both must be registered. Retracting a key without a fact changes nothing.
It is a record under the source's name, if the server lets this user write under it;
exit code 75 means that the log refused it.`,
		Example: `  sagenbaum fact put order/7 '{"status":"placed"}'
  sagenbaum fact put risk '"high"' --source scanner
  sagenbaum fact put seat/12A '"taken"' --plan 01JD3BX7 --action book
  sagenbaum fact put order/7 --retract`,
		Args: func(cmd *cobra.Command, args []string) error {
			if v.retract {
				return cli.Exactly("KEY")(cmd, args)
			}
			return cli.Exactly("KEY", "VALUE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := v.record(args)
			if err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				return cli.Failed("write the fact", putFact(cmd, s, c, v.source, args[0], record))
			})
		},
	}
	cmd.Flags().StringVar(&v.source, "source", cli.DefaultActor(),
		"`NAME` of the observer; by itself the user who runs this")
	cli.PlanFlag(cmd, &v.plan, "`PLAN` of the action that it is the effect of")
	cmd.Flags().StringVar(&v.action, "action", "", "`ACTION` that it is the effect of, by its id")
	cmd.Flags().BoolVar(&v.retract, "retract", false, "end the fact")
	return cmd
}

// record is what the command line says, checked as far as that goes without a server.
func (v putting) record(args []string) (*pb.Record, error) {
	switch {
	case !ledger.ValidToken(v.source):
		return nil, cli.Fail(cli.ExitUsage,
			"--source NAME of the observer: "+ledger.TokenWanted,
			"%q is no source, and each fact has one", v.source)
	case v.action != "" && v.plan == "":
		return nil, cli.Fail(cli.ExitUsage, "--plan PLAN --action ACTION",
			"--action is one of a plan")
	}
	r := &pb.Record{Plan: v.plan, Action: v.action}
	if v.retract {
		r.Kind = &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: args[0]}}
	} else {
		if !json.Valid([]byte(args[1])) {
			return nil, cli.Fail(cli.ExitUsage,
				fmt.Sprintf("sagenbaum fact put %s '\"text\"'; a text is JSON in quotes",
					KeyArg(args[0])), "%q is no JSON value", cli.Clip(args[1], 60))
		}
		r.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: args[0],
			Value: []byte(args[1])}}
	}
	if err := ledger.Check(r,
		ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: v.source}); err != nil {
		return nil, cli.Fail(cli.ExitUsage, "sagenbaum fact put --help", "%v", err)
	}
	return r, nil
}

// written is a record about a fact and what the fold made of it.
type written struct {
	Record uint64 `json:"record"` // sequence
	// Fact is what there is of it now; nil: we may write facts, and not read them.
	Fact *api.Fact `json:"fact,omitempty"`
}

func putFact(cmd *cobra.Command, s *cli.Settings, c *cli.Client, source, key string,
	record *pb.Record) error {
	result, err := Write(cmd.Context(), c,
		ledger.Source{Tenant: c.Tenant, Class: ledger.ClassFact, Name: source}, key, record)
	if err != nil {
		return err
	}
	return s.Print(cmd, result, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s · record %d%s\n", KeyText(key, KeyWhole),
			s.Pen(cmd).State(stateOf(record, result)), result.Record, unchanged(record, result))
	})
}

// stateOf is the state of a fact; a key that was never asserted has none.
func stateOf(record *pb.Record, result written) string {
	switch {
	case result.Fact == nil && record.GetFactRetracted() != nil:
		return api.FactRetracted
	case result.Fact == nil:
		return "asserted"
	case result.Fact.State == "":
		return "never was a fact"
	}
	return result.Fact.State
}

// unchanged says that a retraction ended nothing.
func unchanged(record *pb.Record, result written) string {
	switch v := result.Fact; {
	case record.GetFactRetracted() == nil || v == nil:
		return ""
	case v.State == "":
		return " changes nothing: there is nothing to retract"
	case v.State == api.FactRetracted &&
		!strings.HasPrefix(v.Tombstone, fmt.Sprintf("%d.", result.Record)):
		return " changes nothing: it was retracted at " + v.Tombstone
	default:
		return ""
	}
}

const (
	KeyShown = 48                // columns of a key in a table
	KeyWhole = ledger.FactKeyMax // where it is shown alone
)

// KeyText shows a key in at most n columns: in quotes where one would not see where
// it begins and ends, or take it for two cells.
func KeyText(key string, n int) string {
	if key != strings.Join(strings.Fields(key), " ") || strings.HasPrefix(key, `"`) {
		key = strconv.Quote(key)
	}
	text := []rune(cli.Printable(key))
	if len(text) > n {
		text = append(text[:n-1], '…')
	}
	return string(text)
}

// KeyArg is a key as a shell takes it.
func KeyArg(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool {
		return !strings.ContainsRune("/._:@%+,-", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(key, "'", `'\''`) + "'"
	}
	return key
}

// Write appends one record about a fact and waits until it is folded. A refusal
// there means that the log decided otherwise. A source may ask for refusals, and reads no facts.
func Write(ctx context.Context, c *cli.Client, source ledger.Source, key string,
	record *pb.Record) (written, error) {
	sequence, err := c.AppendRecords(ctx, source, record)
	if err != nil {
		return written{}, err
	}
	look := "sagenbaum fact get " + KeyArg(key)
	refused, err := c.Refusals(ctx, record.Plan, sequence)
	switch {
	case err != nil:
		return written{}, cli.Stored(sequence, look, err)
	case len(refused) > 0:
		return written{}, cli.Fail(cli.ExitConflict, look,
			"record %d has no effect: %s", sequence, strings.Join(refused, "; "))
	case !c.May("fact.get"):
		return written{Record: sequence}, nil
	}
	answer, err := cli.Ask(ctx, c, api.FactGet, api.FactQuery{Key: key, Sequence: sequence})
	if f := (*cli.Failure)(nil); errors.As(err, &f) && f.Code == cli.ExitNotAllowed {
		return written{Record: sequence}, nil // credentials that do not say whose they are
	}
	return written{sequence, &answer.Fact}, cli.Stored(sequence, look, err)
}

func newFactGet(s *cli.Settings) *cobra.Command {
	return cli.Show[api.Fact]{
		Command: &cobra.Command{
			Use:     "get KEY",
			Aliases: []string{"show"},
			Short:   "Show a fact: its value, where it comes from, whether it is in memory",
			Long: `Show a fact: its value, where it comes from, whether it is in memory. The value of
an evicted fact is read from the ledger and stays there: 'memory restore' brings it
back, and so does a lease that reads it.`,
			Example: "  sagenbaum fact get order/7\n  sagenbaum fact get order/7 -o json | jq .value",
			Args:    cli.Exactly("KEY"),
		},
		Doing: "read the fact",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.Fact, error) {
			return Fact(ctx, c, args[0])
		},
		Write: func(out io.Writer, p cli.Pen, v api.Fact) { writeFact(out, p, v, time.Now()) },
	}.New(s)
}

// Fact asks for one fact by its key.
func Fact(ctx context.Context, c *cli.Client, key string) (api.Fact, error) {
	answer, err := cli.Ask(ctx, c, api.FactGet, api.FactQuery{Key: key})
	return answer.Fact, err
}

// writeFact prints one fact for people; nothing in it is trusted.
func writeFact(out io.Writer, p cli.Pen, fact api.Fact, now time.Time) {
	v := cli.ForPeople(fact)
	fmt.Fprintf(out, "%s %s\n", p.Bold(KeyText(fact.Key, KeyWhole)), p.State(v.State))
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "  %-12s %s\n", name, text)
		}
	}
	line("value", cli.Clip(string(fact.Value), 400))
	if v.ReadFrom != "" {
		line("", "evicted, read from the ledger at "+v.ReadFrom)
	}
	if v.Asserted != "" {
		line("asserted",
			v.Asserted+" · "+cli.Relative(v.AssertedNs, now)+"; changed "+cli.Relative(v.ChangedNs,
				now))
	}
	if v.Tombstone != "" {
		line("retracted", v.Tombstone+" · "+cli.Relative(v.RetractedNs, now))
	}
	line("by", sourceOf(v.By))
	line("for", purposeOf(v))
	line("evicted", v.Evicted)
	line("back", v.Reingested)
	line("asked", v.Asked)
	memory := fmt.Sprintf("%d bytes", v.Bytes)
	if v.SinceNs != 0 {
		memory += ", in the eviction queue since " + cli.Moment(v.SinceNs)
	}
	if v.Watched {
		memory += ", a held lease reads it"
	}
	line("size", memory)
}

// sourceOf is the writer of a fact.
func sourceOf(by string) string {
	if by == "" {
		return "the executor"
	}
	return by
}

// purposeOf says which action a fact belongs to.
func purposeOf(v api.Fact) string {
	switch {
	case v.Plan == "":
		return ""
	case v.Compensates:
		return fmt.Sprintf("undo of %s/%s, registered at %s, dispatched at %s", v.Plan, v.Action,
			v.About, v.Cause)
	case v.Action == "":
		return v.Plan
	default:
		return fmt.Sprintf("effect of %s/%s, registered at %s", v.Plan, v.Action, v.About)
	}
}

func newFactLs(s *cli.Settings) *cobra.Command {
	var q api.FactsQuery
	var evicted, retracted bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List facts in order of their keys",
		Example: "  sagenbaum fact ls --prefix order/\n  sagenbaum fact ls --evicted\n  " +
			"sagenbaum fact ls --retracted -o json\n  sagenbaum fact ls --filter 'fact.bytes > " +
			"1000'",
	}
	cmd.Flags().StringVar(&q.Prefix, "prefix", "", "only keys that begin with this `TEXT`")
	cmd.Flags().BoolVar(&evicted, "evicted", false,
		"only evicted facts, whose value is in the ledger alone")
	cmd.Flags().BoolVar(&retracted, "retracted", false, "only tombstones")
	return cli.List[api.Fact]{
		Command: cmd, Doing: "list facts", Name: "fact", Filter: "fact.bytes > 1000",
		Most: "at most `N` facts", From: "start after this `KEY`",
		Check: func() error {
			switch {
			case evicted && retracted:
				return cli.Fail(cli.ExitUsage, "one of the two",
					"no fact is both evicted and retracted")
			case evicted:
				q.State = api.FactEvicted
			case retracted:
				q.State = api.FactRetracted
			}
			return nil
		},
		Ask:   cli.FactBatch(&q),
		Place: func(v api.Fact) string { return v.Key },
		Data: func(facts []api.Fact, next string) any {
			return api.FactsAnswer{Facts: facts, Next: next}
		},
		Empty: "no facts",
		Table: cli.Table{Head: []string{"KEY", "STATE", "BYTES", "ASSERTED", "BY", "FOR", "VALUE"},
			Elastic: []string{"VALUE", "FOR", "BY"},
			Spare:   []string{"BYTES", "FOR", "BY", "ASSERTED"}},
		Paint: func(p cli.Pen, cell string) string {
			word := strings.TrimRight(cell, " ")
			return p.State(word) + cell[len(word):]
		},
		Row:  addFact,
		GoOn: func(next string) string { return "--after " + cli.Printable(KeyArg(next)) },
	}.New(s)
}

func addFact(t *cli.Table, v api.Fact) {
	of := v.Plan
	if v.Action != "" {
		of += "/" + v.Action
	}
	if v.Compensates {
		of = "undo of " + of
	}
	t.Add(KeyText(v.Key, KeyShown), v.State, fmt.Sprint(v.Bytes),
		cli.Relative(v.AssertedNs, time.Now()), sourceOf(v.By), cli.Dash(of),
		cli.Dash(cli.Clip(string(v.Value), 40)))
}

func newFactHistory(s *cli.Settings) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "Show what the ledger says of a fact, the latest last",
		Long: `Show what the ledger says of a fact, the latest last: each assertion, retraction,
eviction and re-ingestion with its address, who wrote it, and what it compensates:
the act that an undo refers to, or the eviction that a re-ingestion takes back.`,
		Example: "  sagenbaum fact history order/7\n  sagenbaum fact history order/7 --limit " +
			"1000 -o json",
		Args: cli.Exactly("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > cli.PageSize {
				return cli.Fail(cli.ExitUsage, "--limit 100", "--limit is 1 to %d, not %d",
					cli.PageSize, limit)
			}
			answer, err := cli.Question(cmd, s, "read the history of the fact", api.FactHistory,
				api.FactQuery{Key: args[0], Limit: limit})
			if err != nil {
				return err
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), answer)
			}
			if answer.More {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"there are earlier ones: a larger --limit, or sagenbaum ledger tail --since 1")
			}
			WriteEvents(cmd.OutOrStdout(), answer.Events, false)
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the latest `N`")
	return cmd
}

// WriteEvents prints records about facts; keys, when they are about several.
func WriteEvents(out io.Writer, events []api.FactEvent, keys bool) {
	t := cli.Table{Head: []string{"ADDRESS", "TIME", "WHAT", "BY", "SAYS"}}
	if keys {
		t.Head = append(t.Head[:2], append([]string{"KEY"}, t.Head[2:]...)...)
	}
	for _, e := range events {
		cells := []string{e.At, cli.Moment(e.StampNs), strings.TrimPrefix(e.Kind, "fact_"),
			sourceOf(e.By), eventText(e)}
		if keys {
			cells = append(cells[:2], append([]string{KeyText(e.Key, KeyShown)}, cells[2:]...)...)
		}
		t.Add(cells...)
	}
	t.Write(out)
}

// eventText is what one record says of a fact.
func eventText(e api.FactEvent) string {
	var parts []string
	if len(e.Value) > 0 {
		parts = append(parts, cli.Clip(string(e.Value), 60))
	}
	of := e.Plan
	if e.Action != "" {
		of += "/" + e.Action
	}
	switch {
	case e.Kind == "fact_evicted":
		parts = append(parts, fmt.Sprintf("%d bytes of %s", e.Bytes, e.Fact))
	case e.Kind == "fact_reingested":
		parts = append(parts, "compensates "+e.Compensates)
	case e.Compensates != "":
		parts = append(parts, fmt.Sprintf("compensates %s, registered at %s", of, e.Compensates))
	case of != "":
		parts = append(parts, "effect of "+of)
	}
	if e.Watched {
		parts = append(parts, "a lease read it")
	}
	switch {
	case e.Cause == "":
	case e.Kind == "fact_evicted" || e.Kind == "fact_reingested":
		parts = append(parts, "asked at "+e.Cause)
	case e.Compensates != "":
		parts = append(parts, "dispatched at "+e.Cause)
	}
	return cli.Dash(strings.Join(parts, "; "))
}
