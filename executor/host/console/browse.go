package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// recordRow is one record of the ledger.
type recordRow struct {
	Address string
	Full    string // with the whole leaf
	StampNs int64
	Class   string // of who wrote it
	Name    string
	Subject string
	Kind    string // empty: it is no record
	Plan    string
	Action  string
	Essence string
	About   string // addresses
	Cause   string
	JSON    string // of the record's own page
	Problem string // why it is no record, or breaks the format
	Refused string // what the fold said
	Void    bool
	Proof   string // same, differs, missing; of the record's own page
	Leaf    uint64 // its index in the tree

	More     int // not 0: this line is about so many further records of a commit
	Sequence uint64
}

type ledgerBody struct {
	Rows        []recordRow
	First, Last uint64 // of the stream
	From, Until uint64 // of this page
	Older       uint64 // From of the page before; 0: none
	Newer       uint64
	Copy        *view.Copy
	Plan        string
}

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
	body := ledgerBody{First: head.First, Last: head.Last, Until: head.Last}
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
	if status, err := ask[view.StatusAnswer](v, "status", struct{}{}); err == nil {
		body.Copy = status.Status.Copy
	}
	return v.show("ledger", "Ledger", "ledger", body)
}

// readable reads the commits of a page; none when there are none.
func readable(
	ctx context.Context, store ledger.Store, body ledgerBody,
) iter.Seq2[ledger.Message, error] {
	if body.Until < body.From {
		return func(func(ledger.Message, error) bool) {}
	}
	return store.Read(ctx, body.From)
}

type recordBody struct {
	Sequence    uint64
	StampNs     int64
	Subject     string
	ContentType string
	Bytes       int
	Records     int
	Rows        []recordRow
	Last        uint64
	Size        uint64 // of the tree
	Root        string // of the tree
	CopyProblem string // why the copy says nothing
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
	body := recordBody{
		Sequence: sequence, StampNs: m.StampNs, Subject: m.Subject, ContentType: m.ContentType,
		Bytes: len(m.Data), Last: head.Last,
	}
	if body.Rows, err = v.rows(m, true); err != nil {
		return err
	}
	v.prove(&body, m)
	return v.show("record", fmt.Sprintf("Record %d", sequence), "ledger", body)
}

// rows are the records of a commit, the last first: in a list the first few of them, and
// how many there are; whole, all that a page shows, with everything they say.
func (v *visit) rows(m ledger.Message, whole bool) (rows []recordRow, err error) {
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
		row := recordRow{
			Address: ledger.FormatAddress(e.Address), Full: ledger.FormatFullAddress(e.Address),
			StampNs: m.StampNs, Subject: m.Subject,
			Class: e.Source.Class.String(), Name: e.Source.Name,
		}
		if e.Err != nil {
			row.Problem = e.Err.Error()
		}
		if r := e.Record; r != nil {
			row.Kind, row.Plan, row.Action = ledger.KindOf(r).Name, r.Plan, r.Action
			row.Essence = essence(r.ProtoReflect())
			if r.About != nil && r.About.Sequence != 0 {
				row.About = ledger.FormatAddress(r.About)
			}
			if r.Cause != nil && r.Cause.Sequence != 0 {
				row.Cause = ledger.FormatAddress(r.Cause)
			}
			if !whole {
				// its page has it
			} else if raw, err := protojson.Marshal(r); err == nil {
				row.JSON = pretty(raw)
			}
		}
		rows = append(rows, row)
	}
	if all > most {
		rows = append(rows, recordRow{More: all - most, Sequence: m.Sequence})
	}
	slices.Reverse(rows)
	return rows, nil
}

// prove holds the records of a commit against the host's second copy of the ledger.
func (v *visit) prove(body *recordBody, m ledger.Message) {
	entries, err := ledger.Decode(v.page.Tenant, m)
	if err != nil {
		return
	}
	body.Records = len(entries)
	refused, _ := ask[view.RefusedAnswer](
		v, "refused.ls", view.ListQuery{AfterSequence: m.Sequence - 1, Limit: len(entries)},
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

// essence lists the fields of a record's kind that are set, in a line, without digests
// and keys, which say nothing to people.
func essence(message protoreflect.Message) string {
	kind := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return ""
	}
	return clip(fields(message.Get(kind).Message()), 160)
}

func fields(message protoreflect.Message) string {
	var parts []string
	list := message.Descriptor().Fields()
	for i := range list.Len() {
		f := list.Get(i)
		name := string(f.Name())
		if !message.Has(f) || name == "key" && f.Number() > 2 || strings.HasSuffix(name, "digest") {
			continue
		}
		if text := fieldText(f, message.Get(f)); text != "" {
			parts = append(parts, strings.TrimSuffix(strings.ReplaceAll(name, "_", " "), " ns")+": "+text)
		}
	}
	return strings.Join(parts, " · ")
}

// enumPrefixes are what the values of enumerations begin with, which is their type.
var enumPrefixes = []string{
	"class_", "plan_end_", "resolution_", "verdict_outcome_", "question_", "presence_",
	"on_in_doubt_", "on_late_", "fidelity_", "on_undo_failure_",
}

func fieldText(f protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch {
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		var all []string
		for i := range value.List().Len() {
			all = append(all, value.List().Get(i).String())
		}
		return clip(strings.Join(all, ", "), 80)
	case f.IsList():
		return fmt.Sprint(value.List().Len())
	case f.Kind() == protoreflect.EnumKind:
		known := f.Enum().Values().ByNumber(value.Enum())
		if known == nil {
			return fmt.Sprint(value.Enum()) // of a newer writer
		}
		name := strings.ToLower(string(known.Name()))
		for _, prefix := range enumPrefixes {
			name = strings.TrimPrefix(name, prefix)
		}
		return strings.ReplaceAll(name, "_", " ")
	case f.Kind() == protoreflect.BytesKind:
		if raw := value.Bytes(); json.Valid(raw) {
			return clip(string(raw), 80)
		}
		return ""
	case f.Kind() == protoreflect.MessageKind:
		if a, ok := value.Message().Interface().(*pb.Address); ok {
			return ledger.FormatAddress(a)
		}
		return clip(fields(value.Message()), 80)
	case f.Kind() == protoreflect.Int64Kind && strings.HasSuffix(string(f.Name()), "_ns"):
		if ns := value.Int(); ns > 1e17 {
			return moment(ns)
		}
		return lasted(value.Int())
	default:
		return clip(fmt.Sprint(value.Interface()), 120)
	}
}

// clip cuts a text to so many bytes, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// pretty is JSON with a line for each field, as far as a page shows it.
func pretty(raw []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return clip(string(raw), payloadShown)
	}
	return clip(out.String(), payloadShown)
}
