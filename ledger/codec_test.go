package ledger_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func encode(t testing.TB, records ...*pb.Record) []byte {
	t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func message(s ledger.Source, contentType string, data []byte) ledger.Message {
	return ledger.Message{Sequence: 7, StampNs: 1_700_000_000_000_000_001, Subject: s.Subject(), ContentType: contentType,
		Data: data}
}

func decode(t testing.TB, m ledger.Message) []ledger.Entry {
	t.Helper()
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatal("no entry")
	}
	return entries
}

func TestACommitDecodesToItsRecordsAndEncodesToTheSameBytes(t *testing.T) {
	for _, g := range good() {
		records := []*pb.Record{g.record}
		switch g.record.Kind.(type) {
		case *pb.Record_ForwardRegistered, *pb.Record_CompensationRegistered:
			records = []*pb.Record{forward("x1"), registration("x1")}
		}
		data := encode(t, records...)
		size := 2 // min_reader
		for _, r := range records {
			size += ledger.RecordSize(r)
		}
		if len(data) != size {
			t.Errorf("%d bytes, RecordSize adds up to %d", len(data), size)
		}
		entries := decode(t, message(g.source, "", data))
		var again []*pb.Record
		for i, e := range entries {
			if e.Err != nil || !proto.Equal(e.Record, records[i]) || e.Count != uint32(len(records)) ||
				e.Address.Index != uint32(i) || e.Address.Sequence != 7 {
				t.Errorf("%s: entry %d is %+v", ledger.KindOf(g.record).Name, i, e)
			}
			again = append(again, e.Record)
		}
		if !bytes.Equal(encode(t, again...), data) {
			t.Errorf("%s: other bytes when encoded again", ledger.KindOf(g.record).Name)
		}
	}
}

func TestCommitsOverTheLimitsAreRefused(t *testing.T) {
	if _, err := ledger.EncodeCommit(nil); refusedField(err) != "records" {
		t.Errorf("empty: %v", err)
	}
	if _, err := ledger.EncodeCommit(make([]*pb.Record, ledger.CommitLenMax+1)); refusedField(err) != "records" {
		t.Errorf("too many: %v", err)
	}
	fact := func(n int) *pb.Record {
		return &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k",
			Value: []byte(`"` + strings.Repeat("x", n) + `"`)}}}
	}
	overhead := len(encode(t, fact(60_000))) - 60_000
	full := encode(t, fact(ledger.CommitSizeMax-overhead))
	if len(full) != ledger.CommitSizeMax || decode(t, message(factSource, "", full))[0].Err != nil {
		t.Errorf("a commit of %d bytes", len(full))
	}
	if _, err := ledger.EncodeCommit([]*pb.Record{fact(ledger.CommitSizeMax - overhead +
		1)}); refusedField(err) != "records" {
		t.Errorf("too large: %v", err)
	}
	// A foreign client can use the room that the stream leaves for headers.
	if e := decode(t, message(factSource, "", append(full, 0)))[0]; refusedField(e.Err) != "commit" {
		t.Errorf("a larger message: %v", e.Err)
	}
}

func TestOnlyTheCanonicalEnvelopeIsACommit(t *testing.T) {
	fact := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}}
	good := encode(t, fact)
	body, err := fact.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	record := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), body)
	for what, c := range map[string]struct {
		data  []byte
		field string
	}{
		"nothing":           {nil, "commit"},
		"no version":        {record, "commit"},
		"version 0":         {append([]byte{8, 0}, record...), "commit.min_reader"},
		"a padded version":  {append([]byte{8, 0x81, 0}, record...), "commit.min_reader"},
		"no record":         {[]byte{8, 1}, "commit.records"},
		"the version last":  {append(bytes.Clone(record), 8, 1), "commit"},
		"the version twice": {append([]byte{8, 1, 8, 1}, record...), "commit"},
		"an unknown field":  {append(bytes.Clone(good), 0x18, 1), "commit"},
		"a cut record":      {good[:len(good)-1], "commit.records"},
		"a padded length":   {append([]byte{8, 1, 18, byte(len(body)) | 0x80, 0}, body...), "commit.records"},
		"a padded tag":      {append([]byte{8, 1, 0x92, 0, byte(len(body))}, body...), "commit"},
		"more records than go": {append([]byte{8, 1}, bytes.Repeat([]byte{18, 0}, ledger.CommitLenMax+1)...),
			"commit.records"},
	} {
		e := decode(t, message(factSource, "", c.data))
		if len(e) != 1 || refusedField(e[0].Err) != c.field || e[0].Record != nil || e[0].Count != 0 {
			t.Errorf("%s: %d entries, %v", what, len(e), e[0].Err)
		}
	}
	if e := decode(t, message(factSource, "", good)); e[0].Err != nil {
		t.Fatal(e[0].Err)
	}
	if e := decode(t, message(factSource, "", []byte{8, 1, 18, 1, 0xff})); refusedField(e[0].Err) != "records[0]" {
		t.Errorf("a record of noise: %v", e[0].Err)
	}
}

func TestACommitInJSONFoldsToTheSameRecords(t *testing.T) {
	records := []*pb.Record{forward("x1"), registration("x1")}
	want := decode(t, message(agentSource, "", encode(t, records...)))
	var raw []json.RawMessage
	for _, r := range records {
		text, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, text)
	}
	for _, envelope := range []string{`{"records":%s}`, `{"minReader":1,"records":%s}`,
		` { "records" : %s , "min_reader" : 1 } `} {
		list, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		data := fmt.Appendf(nil, envelope, list)
		got := decode(t, message(agentSource, ledger.ContentTypeJSON, data))
		if len(got) != len(want) {
			t.Fatalf("%d entries", len(got))
		}
		for i := range got {
			if got[i].Err != nil || !proto.Equal(got[i].Record, want[i].Record) || got[i].Count != 2 {
				t.Errorf("entry %d: %v, %v", i, got[i].Err, got[i].Record)
			}
			if bytes.Equal(got[i].Address.Leaf, want[i].Address.Leaf) {
				t.Errorf("entry %d has the leaf of other bytes", i)
			}
		}
	}
}

func TestBadJSONIsOneRefusedEntry(t *testing.T) {
	fact := `{"factRetracted":{"key":"k"}}`
	for data, field := range map[string]string{
		"":                                    "commit",
		"[]":                                  "commit",
		`{"records":[]}`:                      "commit.records",
		`{"records":[` + fact + `],"more":1}`: "commit.more",
		`{"records":[` + fact + `]} {}`:       "commit.records",
		`{"records":[` + fact + `]} }`:        "commit.records",
		`{"records":[` + fact + `]`:           "commit",
		`{"records":[{"noSuchKind":{}}]}`:     "records[0].noSuchKind",
		`{"records":[1]}`:                     "records[0]",
		`{"records":[{}]}`:                    "kind",
		`{"minReader":-1,"records":[]}`:       "commit",
	} {
		e := decode(t, message(factSource, ledger.ContentTypeJSON, []byte(data)))
		if len(e) != 1 || refusedField(e[0].Err) != field {
			t.Errorf("%s: %d entries, %v", data, len(e), e[0].Err)
		}
	}
}

func TestMessagesThatAreNotTheTenantsOrNotReadableAreRefused(t *testing.T) {
	data := encode(t, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}})
	m := message(factSource, "", data)
	m.Subject = "saga.other.fact.sensor"
	if e := decode(t, m); refusedField(e[0].Err) != "subject" {
		t.Errorf("another tenant: %v", e[0].Err)
	}
	m.Subject = "saga.t.facts"
	if e := decode(t, m); refusedField(e[0].Err) != "subject" {
		t.Errorf("no class: %v", e[0].Err)
	}
	if e := decode(t, message(factSource, "text/plain", data)); refusedField(e[0].Err) != "Content-Type" {
		t.Errorf("text: %v", e[0].Err)
	}
}

func TestACommitForANewerReader(t *testing.T) {
	record, newer := `{"factRetracted":{"key":"k"}}`, fmt.Sprint(ledger.ReaderVersion+1)
	for what, m := range map[string]ledger.Message{
		"protobuf": message(factSource, "",
			append([]byte{8, ledger.ReaderVersion + 1}, encode(t, good()[0].record)[2:]...)),
		"a newer envelope":    message(factSource, "", []byte{8, ledger.ReaderVersion + 1, 0x18, 1}),
		"json":                message(factSource, ledger.ContentTypeJSON, []byte(`{"minReader":`+newer+`,"records":[`+record+`]}`)),
		"json, other case":    message(factSource, ledger.ContentTypeJSON, []byte(`{"min_reader":`+newer+`,"records":[`+record+`]}`)),
		"json, unknown field": message(factSource, ledger.ContentTypeJSON, []byte(`{"minReader":`+newer+`,"frames":[]}`)),
	} {
		if e := decode(t, m); len(e) != 1 || refusedField(e[0].Err) != "commit.min_reader" {
			t.Errorf("%s, from anybody: %d entries, %v", what, len(e), e[0].Err)
		}
		m.Subject = holderSource.Subject()
		if entries, err := ledger.Decode("t", m); !isHalted(err, "reader") || entries != nil {
			t.Errorf("%s, from the holder: %d entries, %v", what, len(entries), err)
		}
	}
}

// TestANewKeyNeedsAReaderThatKnowsOfIt: one of before would read a retry under the same key, and so
// does a holder of before where the commit hides from it what it asks for.
func TestANewKeyNeedsAReaderThatKnowsOfIt(t *testing.T) {
	source := ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"}
	retry := &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Reason: "again", Actor: "ann"}}}
	if data := encode(t, retry); data[1] != 1 {
		t.Errorf("a retry needs reader %d, want 1", data[1])
	}
	retry.GetRetryRequested().NewKey = true
	m := message(source, "", encode(t, retry))
	if m.Data[1] != 8 {
		t.Errorf("a new key needs reader %d, want 8", m.Data[1])
	}
	hidden := message(source, "", encode(t, retry))
	hidden.Data[1] = 1
	json := message(source, ledger.ContentTypeJSON, []byte( // of which an unknown field is refused
		`{"records":[{"plan":"p","action":"a","retryRequested":{"reason":"again","actor":"ann","newKey":true}}]}`))
	for _, c := range []struct {
		message ledger.Message
		fold    uint32
		refused string
		newKey  bool
	}{
		{m, ledger.NewKeySince, "", true}, {m, ledger.NewKeySince - 1, "retry_requested.new_key", true},
		{m, ledger.TextsSince - 1, "retry_requested.new_key", true},
		{hidden, ledger.NewKeySince, "", true}, {hidden, ledger.NewKeySince - 1, "", false},
		{hidden, ledger.TextsSince - 1, "", false},
		{json, ledger.NewKeySince, "", true}, {json, ledger.NewKeySince - 1, "retry_requested.new_key", true},
	} {
		e := ledger.Under(decode(t, c.message), c.fold)[0]
		newKey := e.Record.GetRetryRequested().NewKey
		if got := refusedField(e.Err); got != c.refused || c.refused == "" && newKey != c.newKey {
			t.Errorf("under fold version %d: %v, %v; want %+v", c.fold, e.Err, e.Record, c)
		}
	}
}

// TestATermNeedsAReaderThatKnowsTheRulesOfItsHolder: one of before would judge otherwise what comes of
// them. The newest rules need the newest reader.
func TestATermNeedsAReaderThatKnowsTheRulesOfItsHolder(t *testing.T) {
	for since, want := range map[uint32]byte{
		ledger.AfterCommitSince: 11, ledger.LeftOutSince: 12, ledger.SeenSince: 13, ledger.ThereSince: 14,
		ledger.StagedSince: 15, ledger.SurplusSince: 16, ledger.AdoptedSince: 17, ledger.OthersSince: 18,
		ledger.GivenUpSince: 19, ledger.DoubtedSince: 20, ledger.OwnerFirstSince: 21, ledger.WholeSince: 22,
		ledger.AllFoundSince: 23, ledger.AnytimeSince: ledger.ReaderVersion,
	} {
		for _, fold := range []uint32{since - 1, since} {
			term := &pb.Record{Term: 1,
				Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: fold}}}
			if got := encode(t, term)[1]; fold == since && got != want || fold < since && got >= want {
				t.Errorf("a term of fold version %d needs reader %d, those of %d want %d", fold, got, since, want)
			}
		}
	}
}

// TestAConditionAfterTheCommitNeedsAReaderThatKnowsOfIt: a holder of before refuses the pair, or the
// opening, or does not see what the commit hides from it.
func TestAConditionAfterTheCommitNeedsAReaderThatKnowsOfIt(t *testing.T) {
	held := []*pb.Trigger{{Name: "t", Condition: "true", AfterCommit: true}}
	undo := registration("x1")
	undo.GetCompensationRegistered().Triggers, undo.GetCompensationRegistered().ValidForNs = held, 1e9
	opened := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: held}}}
	for _, records := range [][]*pb.Record{{forward("x1"), undo}, {opened}} {
		m := message(agentSource, "", encode(t, records...))
		if m.Data[1] != 11 {
			t.Errorf("it needs reader %d, want 11", m.Data[1])
		}
		hidden := message(agentSource, "", encode(t, records...))
		hidden.Data[1] = 1
		for _, c := range []struct {
			message        ledger.Message
			fold           uint32
			refused, knows bool
		}{
			{m, ledger.AfterCommitSince, false, true}, {m, ledger.AfterCommitSince - 1, true, true},
			{hidden, ledger.AfterCommitSince, false, true}, {hidden, ledger.AfterCommitSince - 1, false, false},
			{m, 0, false, true}, {hidden, 0, false, true}, // before the first holder
		} {
			entries := ledger.Under(decode(t, c.message), c.fold)
			for _, e := range entries {
				if (e.Err != nil) != c.refused {
					t.Errorf("under fold version %d: %v", c.fold, e.Err)
				}
			}
			last := entries[len(entries)-1].Record
			list := last.GetPlanOpened().GetTriggers()
			if k := last.GetCompensationRegistered(); k != nil {
				list = k.Triggers
			}
			if list[0].AfterCommit != c.knows {
				t.Errorf("under fold version %d: %v", c.fold, list)
			}
		}
	}
}

// TestAHiddenConditionAfterTheCommitRefusesNothingUnderEarlierHolders: what is wrong with it alone
// they did not see, so that the pair, or the child, which they took, counts.
func TestAHiddenConditionAfterTheCommitRefusesNothingUnderEarlierHolders(t *testing.T) {
	held := []*pb.Trigger{{Name: "t", Condition: "true", AfterCommit: true}}
	undo, wrong := registration("x1"), registration("x1")
	undo.GetCompensationRegistered().Triggers = held // without an undo window
	wrong.GetCompensationRegistered().Triggers = []*pb.Trigger{held[0], {Name: "t", Condition: "true"}}
	faulty := registration("x1")
	faulty.GetCompensationRegistered().Triggers, faulty.GetCompensationRegistered().Actuator = held, "none"
	child := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: held,
		ParentPlan: "p0"}}}
	for _, c := range []struct {
		what    string
		records []*pb.Record
		refused bool // by earlier holders, too
	}{
		{"an undo without a window", []*pb.Record{forward("x1"), undo}, false},
		{"the opening of a child", []*pb.Record{child}, false},
		{"one that is wrong besides", []*pb.Record{forward("x1"), wrong}, true},
		{"one that is wrong in what is checked later", []*pb.Record{forward("x1"), faulty}, true},
	} {
		hidden := message(agentSource, "", encode(t, c.records...))
		hidden.Data[1] = 1
		entries := decode(t, hidden)
		for _, fold := range []uint32{0, 1, ledger.TextsSince, ledger.AfterCommitSince - 1, ledger.AfterCommitSince} {
			for i, e := range ledger.Under(entries, fold) {
				refused, alone := c.refused || fold >= ledger.AfterCommitSince || fold == 0, entries[i].Under(fold)
				if (e.Err != nil) != refused || (alone.Err != nil) != refused {
					t.Errorf("%s, under fold version %d: %v, %v", c.what, fold, e.Err, alone.Err)
				}
				if paired := e.Pair != nil; paired != (len(c.records) == 2 && !refused) {
					t.Errorf("%s, under fold version %d: its pair is %v", c.what, fold, e.Pair)
				}
			}
		}
	}
}

func TestHalfAPairIsRefused(t *testing.T) {
	fact := &pb.Record{Plan: "p1", Action: "x1",
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	invalid := registration("x1")
	invalid.GetCompensationRegistered().Attempts = ledger.AttemptsMax + 1
	for _, c := range []struct {
		what    string
		records []*pb.Record
		fields  []string
	}{
		{"a pair", []*pb.Record{forward("x1"), registration("x1")}, []string{"", ""}},
		{"a pair and its outcome", []*pb.Record{forward("x1"), registration("x1"), fact}, []string{"", "", ""}},
		{"two pairs, one in the other", []*pb.Record{forward("x2"), forward("x1"), registration("x1"), registration("x2")},
			[]string{"", "", "", ""}},
		{"the compensation first", []*pb.Record{registration("x1"), forward("x1")}, []string{"pair", "pair"}},
		{"one of two pairs the wrong way round",
			[]*pb.Record{registration("x2"), forward("x1"), registration("x1"), forward("x2")}, []string{"pair", "", "",
				"pair"}},
		{"a forward alone", []*pb.Record{forward("x1")}, []string{"pair"}},
		{"a registration alone", []*pb.Record{registration("x1"), fact}, []string{"pair", ""}},
		{"of different actions", []*pb.Record{forward("x1"), registration("x2")}, []string{"pair", "pair"}},
		{"two forwards, one registration", []*pb.Record{forward("x1"), forward("x1"), registration("x1")},
			[]string{"pair", "pair", "pair"}},
		{"a registration that is refused", []*pb.Record{forward("x1"), invalid},
			[]string{"pair", "compensation_registered.attempts"}},
	} {
		for _, encoding := range []string{"", ledger.ContentTypeJSON} {
			data := encode(t, c.records...)
			if encoding != "" {
				data = inJSON(t, c.records...)
			}
			for i, e := range decode(t, message(agentSource, encoding, data)) {
				if refusedField(e.Err) != c.fields[i] {
					t.Errorf("%s in %q: entry %d: %v", c.what, encoding, i, e.Err)
				}
				if paired := e.Err == nil && ledger.KindOf(e.Record).Name != "forward_completed"; paired != (e.Pair != nil) ||
					paired && e.Pair.Action != e.Record.Action {
					t.Errorf("%s in %q: entry %d has the other half %v", c.what, encoding, i, e.Pair)
				}
			}
		}
		if err := ledger.CheckCommit(c.records, agentSource); (err == nil) != (strings.Join(c.fields, "") == "") {
			t.Errorf("%s: CheckCommit says %v", c.what, err)
		}
	}
}

func inJSON(t testing.TB, records ...*pb.Record) []byte {
	t.Helper()
	var texts []string
	for _, r := range records {
		text, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return []byte(`{"records":[` + strings.Join(texts, ",") + `]}`)
}

// TestTheOtherHalfSaysWhatIsWrong: one refusal of a message is recorded, the first.
func TestTheOtherHalfSaysWhatIsWrong(t *testing.T) {
	bad := registration("x1")
	bad.GetCompensationRegistered().Attempts = ledger.AttemptsMax + 1
	e := decode(t, message(agentSource, "", encode(t, forward("x1"), bad)))
	const want = "refused: pair: its compensation_registered is refused: compensation_registered.attempts: 101; want 1 " +
		"to 100"
	if got := fmt.Sprint(e[0].Err); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

func TestUnknownFieldsOfARecordAreKept(t *testing.T) {
	body, err := forward("x1").MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	body = protowire.AppendString(protowire.AppendTag(body, 900, protowire.BytesType), "from a later version")
	data := protowire.AppendBytes([]byte{8, 1, 18}, body)
	reg := encode(t, registration("x1"))[2:]
	e := decode(t, message(agentSource, "", append(data, reg...)))
	if e[0].Err != nil || !bytes.Equal(encode(t, e[0].Record)[2:], data[2:]) {
		t.Fatalf("%v", e[0].Err)
	}
}

// FuzzDecode holds that any message decodes, to the same entries each time, and
// that what decodes without an error encodes to the bytes it came from.
func FuzzDecode(f *testing.F) {
	for _, g := range good() {
		f.Add(g.source.Subject(), "", encode(f, g.record))
		if text, err := protojson.Marshal(g.record); err == nil {
			f.Add(g.source.Subject(), ledger.ContentTypeJSON, fmt.Appendf(nil, `{"records":[%s]}`, text))
		}
	}
	f.Add(agentSource.Subject(), "", encode(f, forward("x1"), registration("x1")))
	f.Add("saga.t", "text/plain", []byte(nil))
	f.Fuzz(func(t *testing.T, subject, contentType string, data []byte) {
		m := ledger.Message{Sequence: 3, StampNs: -5, Subject: subject, ContentType: contentType, Data: data}
		entries, err := ledger.Decode("t", m)
		again, err2 := ledger.Decode("t", m)
		if fmt.Sprint(err) != fmt.Sprint(err2) || len(entries) != len(again) {
			t.Fatalf("%v with %d entries, then %v with %d", err, len(entries), err2, len(again))
		}
		if err != nil {
			if !isHalted(err, "reader") || entries != nil {
				t.Fatal(err)
			}
			return
		}
		if len(entries) == 0 {
			t.Fatal("no entry")
		}
		whole := contentType == ""
		var records []*pb.Record
		for i, e := range entries {
			if len(e.Address.Leaf) != ledger.LeafSize || e.Address.Index != uint32(i) || e.Address.Sequence != 3 ||
				e.StampNs != -5 {
				t.Fatalf("entry %d: %+v", i, e)
			}
			if hex.EncodeToString(e.Address.Leaf) != hex.EncodeToString(again[i].Address.Leaf) ||
				fmt.Sprint(e.Err) != fmt.Sprint(again[i].Err) {
				t.Fatalf("entry %d differs the second time", i)
			}
			if e.Err == nil && e.Record == nil {
				t.Fatalf("entry %d is neither a record nor an error", i)
			}
			body, err := []byte(nil), error(nil)
			if e.Record != nil {
				body, err = e.Record.MarshalVT()
			}
			// A record may itself be written in more than one way; then only its
			// received bytes count, and they are what the leaf covers.
			whole = whole && e.Record != nil && err == nil && bytes.Equal(body, e.Body)
			records = append(records, e.Record)
		}
		if whole {
			if data2, err := ledger.EncodeCommit(records); err != nil || !bytes.Equal(data2, data) {
				t.Fatalf("encodes to %x, %v", data2, err)
			}
		}
	})
}
