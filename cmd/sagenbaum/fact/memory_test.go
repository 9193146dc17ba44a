package fact

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestHistorySaysWhatCompensatesWhat: what a person reads of each record.
func TestHistorySaysWhatCompensatesWhat(t *testing.T) {
	for _, c := range []struct {
		event api.FactEvent
		want  string
	}{
		{api.FactEvent{Kind: "fact_asserted", Value: []byte(`"x"`)}, `"x"`},
		{api.FactEvent{Kind: "fact_asserted", Value: []byte(`1`), Plan: "p", Action: "a"}, "1; effect of p/a"},
		{api.FactEvent{Kind: "fact_asserted", Value: []byte(`1`), Plan: "p", Action: "a", Compensates: "3.0",
			Cause: "7.2"}, "1; compensates p/a, registered at 3.0; dispatched at 7.2"},
		{api.FactEvent{Kind: "fact_retracted"}, "-"},
		{api.FactEvent{Kind: "fact_evicted", Fact: "3.0", Bytes: 9, Watched: true},
			"9 bytes of 3.0; a lease read it"},
		{api.FactEvent{Kind: "fact_reingested", Compensates: "4.0", Cause: "5.0"},
			"compensates 4.0; asked at 5.0"},
	} {
		if got := eventText(c.event); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestKeysAreShownSoThatTheyCanBeRead, and typed.
func TestKeysAreShownSoThatTheyCanBeRead(t *testing.T) {
	long := strings.Repeat("k", ledger.FactKeyMax)
	for _, c := range []struct{ key, shown, typed string }{
		{"order/7", "order/7", "order/7"}, {" ", `" "`, "' '"}, {"a  b", `"a  b"`, "'a  b'"}, {"a b", "a b", "'a b'"},
		{"it's", "it's", `'it'\''s'`}, {`"a"`, `"\"a\""`, `'"a"'`}, {"a\nb", `"a\nb"`, "'a\nb'"},
		{long, long[:KeyShown-1] + "…", long},
	} {
		if shown, typed := KeyText(c.key, KeyShown), KeyArg(c.key); shown != c.shown || typed != c.typed {
			t.Errorf("%q: %s, %s", c.key, shown, typed)
		}
	}
	if got := KeyText(long, KeyWhole); got != long {
		t.Errorf("alone it is %s", got)
	}
}
