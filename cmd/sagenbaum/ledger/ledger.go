// Package ledger is `sagenbaum ledger`: read, export, scrub and repair the ledger.
package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum ledger` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "ledger",
		Short:   "Read the ledger, export it, compare it with its copy, repair it",
		Example: "  sagenbaum ledger tail --follow\n  sagenbaum ledger scrub",
	}, newLedgerTail(s), newLedgerShow(s), cli.Watchable(s, newLedgerLs(s)), Export(s),
		newLedgerScrub(s), newLedgerRepair(s), newCheck(s))
}

// tailDefault is how many commits tail shows when it is not told where to start.
const tailDefault = 20

func newLedgerTail(s *cli.Settings) *cobra.Command {
	var since uint64
	var follow bool
	var only, where string
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the records of the ledger, one line each",
		Long: `Print the records of the ledger, one line each: address, time, who wrote it, what
it is, the plan, and what it says. Without --since the last 20 commits.
With -o json every line is one JSON object. --filter picks records by a CEL expression
over kind, plan, action, class, name, subject, verdict (that a supervisor gave),
refused, sequence, index, time and record, the record's JSON, in which numbers of 64
bits are text. A host serves them, byte for byte, from its second copy.`,
		Example: `  sagenbaum ledger tail --follow
  sagenbaum ledger tail --since 1 --plan 01JD3BX7
  sagenbaum ledger tail --since 1 --filter 'kind == "forward_failed" && plan.startsWith("01J")'
  sagenbaum ledger tail --since 1 -o json | jq -r .kind | sort | uniq -c`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := tailer{out: cmd.OutOrStdout(), pen: s.Pen(cmd), json: s.JSON(), plan: only,
				tenant: s.Tenant}
			if where != "" {
				var err error
				if t.where, err = triggers.CompileFilter(where); err != nil {
					return cli.Fail(cli.ExitUsage, `--filter 'kind == "plan_opened"'`,
						"--filter: %v", err)
				}
			}
			return s.With(func(c *cli.Client) error {
				ctx, cancel := c.Guarded(cmd.Context())
				defer cancel()
				err := t.tail(ctx, c, since, follow)
				if t.picked == 0 && t.unanswered > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(),
						"nothing is picked; of %d records --filter could not be answered, "+
							"first of %s\n", t.unanswered, cli.Printable(t.why))
				}
				switch {
				case follow && cmd.Context().Err() != nil:
					return nil // interrupted is how following ends
				case err != nil && c.Denied.Load() != nil:
					err = c.Explain("the ledger", err)
				}
				return cli.Failed("read the ledger", err)
			})
		},
	}
	cmd.Flags().Uint64Var(&since, "since", 0, "start at this `SEQUENCE`; 1 is the beginning")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"go on as records arrive, until interrupted")
	cli.PlanFlag(cmd, &only, "only records of this `PLAN`")
	cmd.Flags().StringVar(&where, "filter", "",
		"only records for which this `CEL` expression is true")
	return cmd
}

type tailer struct {
	out    io.Writer
	pen    cli.Pen
	json   bool
	plan   string // only this one; empty: all
	where  *triggers.Filter
	tenant string

	picked, unanswered int
	why                string // the first one was not answered
}

// tail prints from a sequence on (0: the last few commits), to the end that
// the ledger has when it starts, or for ever.
func (t *tailer) tail(ctx context.Context, c *cli.Client, since uint64, follow bool) error {
	last, err := c.LastSequence(ctx)
	if err != nil {
		return err
	}
	if since == 0 {
		since = max(last, tailDefault) - tailDefault + 1
	}
	for m, err := range c.ReadLedger(ctx, since, last, follow) {
		if err != nil {
			return err
		}
		if err := t.message(m); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t *tailer) message(m ledger.Message) error {
	entries, err := ledger.Decode(t.tenant, m)
	if err != nil {
		return err // a commit that needs a newer reader
	}
	for _, e := range entries {
		if t.plan != "" && (e.Record == nil || e.Record.Plan != t.plan) {
			continue
		}
		if t.where != nil && !t.picks(m, e) {
			continue
		}
		if t.json {
			err = t.writeJSON(m, e)
		} else {
			_, err = fmt.Fprintln(t.out, t.line(m, e, entries))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// picks asks the filter, and remembers what it could not answer.
func (t *tailer) picks(m ledger.Message, e ledger.Entry) bool {
	picked, err := t.where.Matches(recordView(m, e))
	if picked {
		t.picked++
	}
	if err != nil {
		if t.unanswered++; t.unanswered == 1 {
			t.why = fmt.Sprintf("%s: %v", ledger.FormatAddress(e.Address), err)
		}
	}
	return picked
}

// recordView is what a filter may read of a record.
func recordView(m ledger.Message, e ledger.Entry) triggers.RecordView {
	v := triggers.RecordView{
		Sequence: int64(m.Sequence), Index: int64(e.Address.Index), TimeNs: m.StampNs,
		Class: e.Source.Class.String(), Name: e.Source.Name, Subject: m.Subject,
	}
	if e.Err != nil {
		v.Refused = e.Err.Error()
	}
	if e.Record == nil {
		return v
	}
	v.Kind, v.Plan, v.Action = ledger.KindOf(e.Record).Name, e.Record.Plan, e.Record.Action
	if k := e.Record.GetVerdictGiven(); k != nil {
		v.Verdict = strings.ToLower(strings.TrimPrefix(k.Outcome.String(), "VERDICT_OUTCOME_"))
	}
	if raw, err := protojson.Marshal(e.Record); err == nil &&
		json.Unmarshal(raw, &v.Record) != nil {
		v.Record = nil
	}
	return v
}

// TailLine is one record in JSON.
type TailLine struct {
	Address  string          `json:"address"`
	Sequence uint64          `json:"sequence"`
	Index    uint32          `json:"index"`
	Time     string          `json:"time"` // RFC 3339
	Subject  string          `json:"subject"`
	Kind     string          `json:"kind,omitempty"`
	Plan     string          `json:"plan,omitempty"`
	Action   string          `json:"action,omitempty"`
	Refused  string          `json:"refused,omitempty"`
	Record   json.RawMessage `json:"record,omitempty"`
}

func (t tailer) writeJSON(m ledger.Message, e ledger.Entry) error {
	line, err := tailLineOf(m, e)
	if err != nil {
		return err
	}
	return cli.PrintLine(t.out, line)
}

func tailLineOf(m ledger.Message, e ledger.Entry) (TailLine, error) {
	line := TailLine{
		Address: ledger.FormatAddress(e.Address), Sequence: m.Sequence, Index: e.Address.Index,
		Time: time.Unix(0, m.StampNs).UTC().Format(time.RFC3339Nano), Subject: m.Subject,
	}
	if e.Err != nil {
		line.Refused = e.Err.Error()
	}
	if e.Record != nil {
		raw, err := protojson.Marshal(e.Record)
		if err != nil {
			return line, err
		}
		line.Kind, line.Record = ledger.KindOf(e.Record).Name, raw
		line.Plan, line.Action = e.Record.Plan, e.Record.Action
	}
	return line, nil
}

// line is one record for people; entries are all of its commit. Columns are as wide as they usually
// need.
func (t tailer) line(m ledger.Message, e ledger.Entry, entries []ledger.Entry) string {
	source := e.Source.Class.String()
	if e.Source.Name != "" {
		source += " " + e.Source.Name
	}
	if source == "" {
		source = m.Subject
	}
	source = cli.Printable(source)
	text := fmt.Sprintf("%-16s %s  %-18s ", ledger.FormatAddress(e.Address), cli.Clock(m.StampNs),
		source)
	if e.Record == nil {
		return text + t.pen.In("31", "not a record") + "  " + cli.Clip(e.Err.Error(), 160)
	}
	text += fmt.Sprintf("%-24s %-12s ", ledger.KindOf(e.Record).Name,
		cli.Dash(cli.Printable(e.Record.Plan)))
	if e.Record.Action != "" {
		text += cli.Printable(e.Record.Action) + " "
	}
	text += t.pen.Dim(cli.Printable(Essence(e.Record, entries)))
	if e.Err != nil {
		problem := "refused: "
		if e.Partial {
			problem = "read in part: "
		}
		text += "  " + t.pen.In("31", problem) + cli.Clip(ledger.WhyRefused(e.Err.Error()), 160)
	}
	return strings.TrimRight(text, " ")
}

// Essence lists the fields of a record's kind that are set, then whom the
// record is about, in the order of record.proto. Long and binary values are cut.
func Essence(r *pb.Record, entries []ledger.Entry) string {
	var parts []string
	add := func(name, value string) { parts = append(parts, name+"="+value) }
	message := r.ProtoReflect()
	kind := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return ""
	}
	if text := fieldsText(message.Get(kind).Message()); text != "" {
		parts = append(parts, text)
	}
	if r.About != nil {
		add("about", referenceText(r.About, entries))
	}
	if r.Cause != nil {
		add("cause", referenceText(r.Cause, entries))
	}
	return strings.Join(parts, " ")
}

// fieldsText lists the fields of a message that are set, those of a message within
// it in braces.
func fieldsText(message protoreflect.Message) string {
	var parts []string
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); message.Has(field) {
			parts = append(parts,
				strings.TrimSuffix(string(field.Name()), "_ns")+"="+fieldText(field,
					message.Get(field)))
		}
	}
	return strings.Join(parts, " ")
}

// referenceText is an address as people see it; sequence 0 means a record of the
// same commit.
func referenceText(a *pb.Address, entries []ledger.Entry) string {
	if a.Sequence == 0 && int(a.Index) < len(entries) {
		a = entries[a.Index].Address
	}
	return ledger.FormatAddress(a)
}

func fieldText(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch {
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		return fmt.Sprintf("(%d)", value.List().Len())
	case field.IsList():
		var items []string
		for i := range value.List().Len() {
			items = append(items, fmt.Sprint(value.List().Get(i).Interface()))
		}
		return cli.Clip(strings.Join(items, ","), 60)
	case field.Kind() == protoreflect.EnumKind:
		known := field.Enum().Values().ByNumber(value.Enum())
		if known == nil {
			return fmt.Sprint(value.Enum()) // from a newer writer
		}
		name := string(known.Name())
		prefix := strings.ToUpper(snake(string(field.Enum().Name()))) + "_"
		return strings.ToLower(strings.TrimPrefix(name, prefix))
	case field.Kind() == protoreflect.BytesKind:
		raw := value.Bytes()
		if json.Valid(raw) {
			return cli.Clip(string(raw), 60)
		}
		if field.Name() == "trace" {
			return cli.Quoted(cli.Clip(string(raw), 80)) // W3C traceparent is text
		}
		return fmt.Sprintf("%x…", raw[:min(4, len(raw))])
	case field.Kind() == protoreflect.Int64Kind && strings.HasSuffix(string(field.Name()), "_ns"):
		return nsText(string(field.Name()), value.Int())
	case field.Kind() == protoreflect.StringKind:
		return cli.Quoted(cli.Clip(value.String(), 80))
	case field.Kind() == protoreflect.MessageKind:
		if a, ok := value.Message().Interface().(*pb.Address); ok {
			return ledger.FormatAddress(a)
		}
		return "{" + fieldsText(value.Message()) + "}"
	default:
		return fmt.Sprint(value.Interface())
	}
}

// nsText prints an instant as a time and a length as a duration; which of the
// two a field is, is in its name.
func nsText(name string, ns int64) string {
	switch name {
	case "deadline_ns", "until_ns", "valid_until_ns", "closes_ns", "wall_ns":
		return strings.ReplaceAll(cli.Moment(ns), " ", "T")
	default:
		return time.Duration(ns).String()
	}
}

// snake turns CamelCase into camel_case.
func snake(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return strings.ToLower(out.String())
}
