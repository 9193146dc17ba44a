package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestBranchesHaveLanesOfTheirOwn draws plans, an action a word: "4<2,3" came after 2 and 3.
func TestBranchesHaveLanesOfTheirOwn(t *testing.T) {
	for plan, want := range map[string]string{
		"1 2<1 3<2": "1@0 in[] out[0] pass[] · 2@0 in[0] out[0] pass[] · 3@0 in[0] out[] pass[]",
		"1 2<1 3<1 4<2,3": "1@0 in[] out[0 1] pass[] · 2@0 in[0] out[0] pass[1] · 3@1 in[1] out[1] pass[0] · 4@0 " +
			"in[0 1] out[] pass[]",
		"1 2 3": "1@0 in[] out[] pass[] · 2@0 in[] out[] pass[] · 3@0 in[] out[] pass[]",
		"1 2<1 3<1 4<3 5<2 6<4,5": "1@0 in[] out[0 1] pass[] · 2@0 in[0] out[0] pass[1] · 3@1 in[1] out[1] pass[0] · 4@1 " +
			"in[1] out[1] pass[0] · 5@0 in[0] out[0] pass[1] · 6@0 in[0 1] out[] pass[]",
		"7<6 8<7": "7@0 in[] out[0] pass[] · 8@0 in[0] out[] pass[]",
		"1 2<1 3<1 4<1 5<2,3,4 6<5": "1@0 in[] out[0 1 2] pass[] · 2@0 in[0] out[0] pass[1 2] · 3@1 in[1] out[1] pass[0 2] " +
			"· 4@2 in[2] out[2] pass[0 1] · 5@0 in[0 1 2] out[0] pass[] · 6@0 in[0] out[] pass[]",
	} {
		var actions []api.Action
		for _, word := range strings.Fields(plan) {
			var a api.Action
			number, after, _ := strings.Cut(word, "<")
			_, _ = fmt.Sscan(number, &a.Number)
			for _, n := range strings.FieldsFunc(after, func(r rune) bool { return r == ',' }) {
				var before int
				_, _ = fmt.Sscan(n, &before)
				a.After = append(a.After, before)
			}
			actions = append(actions, a)
		}
		rows, _ := draw(actions)
		var got []string
		for i, row := range rows {
			got = append(got, fmt.Sprintf("%d@%d in%v out%v pass%v", actions[i].Number, row.At, row.In, row.Out, row.Pass))
		}
		if text := strings.Join(got, " · "); text != want {
			t.Errorf("%s:\n%s, want\n%s", plan, text, want)
		}
	}
}

func TestATimelineKeepsItsBarsWithinItAndItsRetriesInOrder(t *testing.T) {
	const ms = 1_000_000
	now := int64(5000 * ms)
	undos := []api.Undo{
		{
			Number: 2, Compensation: "b", Attempt: 2, State: "dispatched", DispatchedNs: 1500 * ms, WaitedNs: 500 * ms,
			Dispatched: "9.0-00000000",
		},
		{
			Number: 2, Compensation: "b", Attempt: 1, State: "failed", DispatchedNs: 0, EndedNs: 1000 * ms, WorkNs: 400 * ms,
			Dispatched: "5.0-00000000", Ended: "6.0-00000000",
		},
		{
			Number: 1, Compensation: "a", Attempt: 1, State: "done", DispatchedNs: 2000 * ms, EndedNs: 2000 * ms,
			WorkNs: 9000 * ms, Dispatched: "7.0-00000000", Ended: "8.0-00000000",
		},
	}
	line := newTimeline(
		api.Plan{Actions: []api.Action{{Number: 1, Undo: "compensated"}, {Number: 2, Undo: "dispatched"}}},
		undos, now,
	)
	if !line.Running || line.FromNs != 0 || line.UntilNs != now || len(line.Lines) != 2 || line.Lines[0].Number != 2 ||
		line.Lines[0].Attempts != 2 {
		t.Fatalf("%+v", line)
	}
	var got []string
	for _, b := range line.Lines[0].Bars {
		got = append(got, fmt.Sprintf("%s %s %d+%d %s", b.Kind, b.State, b.X, b.Width, b.Address))
	}
	want := "queue failed 0+120 5.0-00000000, work failed 120+80 6.0-00000000, wait dispatched 200+100 9.0-00000000, " +
		"work dispatched 300+700 9.0-00000000"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("bars %s, want %s", text, want)
	}
	for _, l := range line.Lines {
		for _, b := range l.Bars {
			if b.X < 0 || b.Width < 1 || b.X+b.Width > timelineWidth {
				t.Errorf("a bar sticks out: %+v", b)
			}
		}
	}
	if newTimeline(api.Plan{}, nil, now) != nil {
		t.Error("a timeline of nothing")
	}
}

func TestWhatIsInvisibleIsShownAsAnEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 漢 🌳": "plain ü 漢 🌳", "a\u202eb": `a\u202eb`, "bell\x07": `bell\u0007`, "two\rlines": "two lines",
		"\xff": "\uFFFD", "zero\u200bwidth": `zero\u200bwidth`, "a\n\tb\u202e": "a\n\tb" + `\u202e`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	const page = "<b title=\"a\a\">a\a</b><input value=\"a\a\"><p>a\a</p>"
	const want = `<b title="a\u0007">a\u0007</b><input value="a` + "\a" + `"><p>a\u0007</p>`
	if got := string(visible([]byte(page))); got != want {
		t.Errorf("%q is shown as %q, want %q", page, got, want)
	}
}
