package ledger_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const recordsHead = `# The records, in JSON

What a ledger consists of, one example of each kind, for whoever writes records without a client
([agents](agents.md#other-languages), [workers](workers.md)) or reads them. Most agents need none of
it: the [door](door.md) writes their records.

A commit is one message: ` + "`{\"records\": [...]}`" + ` with the header ` +
	"`Content-Type: application/json`" + `, or
the same in protobuf. The bodies are protojson of
[record.proto](../proto/sagenbaum/v1/record.proto), which says what each field means: bytes in
base64, numbers of 64 bits as text. ` + "`sagenbaum ledger check`" + ` says what commits would do,
offline.

The examples are made by the tests: this page is what the checks of package ledger accept.

## Ids

Facts, verdicts and what operators ask for have an id, which only they have: a
[ULID](https://github.com/ulid/spec) or a UUID of version 7 (RFC 9562), made when the record is and
kept over its retries. A copy of a record that counted changes nothing then, however late it is
stored ([reliability](reliability.md#messages)). Without an id it counts once more. Any other record
is known by what it says.

## Texts and names

What people read never stops an act: ` + "`reason`, `message`, `code`, `note`, `evidence`, `problem`" + ` and
the ` + "`label`" + ` of a plan. Bytes that are no UTF-8 become U+FFFD, and a text of more than 4 KiB is cut
between two characters, with ` + "` … [cut: 6144 bytes]`" + ` at its end. In JSON it need not be a string: of
a number or an object its JSON is the text. Every other string names something. It is exact, or its
record is refused; but what has happened is recorded without a name that is not, and what a worker
calls its undo is for people.
`

// heads are the kinds by who writes them.
var heads = map[ledger.Class]string{
	ledger.ClassAgent:    "Agents, on `saga.TENANT.agent.NAME._`",
	ledger.ClassFact:     "Sources, on `saga.TENANT.fact.NAME`",
	ledger.ClassVerdict:  "Supervisors, on `saga.TENANT.verdict.NAME`",
	ledger.ClassOperator: "Operators, on `saga.TENANT.operator.NAME`",
	ledger.ClassWorker:   "Workers, on `saga.TENANT.worker.NAME`",
	ledger.ClassExecutor: "Hosts, on `saga.TENANT.executor`",
}

// TestEveryRecordHasAnExample: docs/records.md has each kind, as the checks accept it, and what is
// read from the page is the record.
func TestEveryRecordHasAnExample(t *testing.T) {
	var page strings.Builder
	page.WriteString(recordsHead)
	seen := map[string]bool{}
	for _, class := range []ledger.Class{ledger.ClassAgent, ledger.ClassFact, ledger.ClassVerdict,
		ledger.ClassOperator, ledger.ClassWorker, ledger.ClassExecutor} {
		fmt.Fprintf(&page, "\n## %s\n", heads[class])
		for _, g := range good() {
			if g.source.Class != class {
				continue
			}
			kind := ledger.KindOf(g.record).Name
			if ledger.TakesID(class) {
				g.record.Id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
			}
			seen[kind] = true
			text := indented(t, g.record)
			fmt.Fprintf(&page, "\n`%s`\n\n```json\n%s\n```\n", kind, text)
			entries, err := ledger.Decode("t", ledger.Message{Sequence: 1, StampNs: 1, Subject: g.source.Subject(),
				ContentType: ledger.ContentTypeJSON, Data: fmt.Appendf(nil, `{"records":[%s]}`, text)})
			half := kind == "forward_registered" || kind == "compensation_registered"
			if err != nil || len(entries) != 1 || !proto.Equal(entries[0].Record, g.record) ||
				entries[0].Err != nil && !half { // a pair is two records
				t.Errorf("%s is read as %+v, %v", kind, entries, err)
			}
		}
	}
	kinds := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		if name := string(kinds.Get(i).Name()); !seen[name] {
			t.Errorf("%s has no example", name)
		}
	}
	const file = "../docs/records.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != page.String() {
		t.Errorf("docs/records.md is another page; write it: go test ./ledger -run EveryRecordHas -update (%v)", err)
	}
}

// indented is a record in protojson, which has spaces of its own choice.
func indented(t *testing.T, r *pb.Record) string {
	t.Helper()
	text, err := protojson.Marshal(r)
	var compact, wide bytes.Buffer
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err == nil {
		err = json.Indent(&wide, compact.Bytes(), "", "  ")
	}
	if err != nil {
		t.Fatal(err)
	}
	return wide.String()
}
