package triggers_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers"
)

func TestAFilterPicksRecords(t *testing.T) {
	r := triggers.RecordView{
		Sequence: 17, Index: 1, TimeNs: 1767323045000000000, Kind: "verdict_given", Plan: "p", Action: "a", Class: "verdict",
		Name:    "v1",
		Subject: "saga.t.verdict.v1", Verdict: "block", Record: map[string]any{"plan": "p",
			"verdictGiven": map[string]any{"reason": "too late"}},
	}
	for text, want := range map[string]bool{
		`kind == "verdict_given" && verdict == "block"`:           true,
		`plan in ["q", "r"]`:                                      false,
		`sequence >= 17 && index == 1`:                            true,
		`class == "verdict" && name.startsWith("v")`:              true,
		`time < timestamp("2026-01-02T03:04:05Z")`:                false,
		`time >= timestamp("2026-01-02T03:04:05Z")`:               true,
		`record.verdictGiven.reason.contains("late")`:             true,
		`record.planOpened.label == "x"`:                          false, // it has none
		`has(record.planOpened)`:                                  false,
		`refused == "" && action.matches("^a$") && subject != ""`: true,
	} {
		f, err := triggers.CompileFilter(text)
		if err != nil {
			t.Fatal(text, err)
		}
		if got, err := f.Matches(r); got != want || (err != nil) != strings.Contains(text, "planOpened.label") {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	f, err := triggers.CompileFilter(`kind == ""`)
	if err != nil {
		t.Fatal(err)
	}
	if picked, err := f.Matches(triggers.RecordView{}); !picked || err != nil {
		t.Error("what is no record cannot be picked", err)
	}
	for text, want := range map[string]string{
		``: "no expression", `kid == "x"`: "did you mean kind", `plan`: "true or false", `facts["x"]`: "a filter reads",
		`kind = "x"`:              "use ==",
		strings.Repeat("x", 5000): "no expression",
	} {
		if _, err := triggers.CompileFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30s: %v, want %s", text, err, want)
		}
	}
}
