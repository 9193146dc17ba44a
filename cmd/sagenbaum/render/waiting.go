package render

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Alike groups commands that wait for the same worker, and for the same kind of reason: without
// that worker there may be thousands. Each group begins with the command that waits longest.
func Alike(waiting []api.Waiting) (groups [][]api.Waiting) {
	type cause struct {
		capability, handler, version string
		working, heard, notSent      bool
	}
	at := map[cause]int{}
	for _, w := range waiting {
		of := cause{w.Capability, w.Handler, w.Version, w.Working, w.Heard, w.Problem != ""}
		n, known := at[of]
		if !known {
			n = len(groups)
			at[of], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], w)
	}
	for _, alike := range groups {
		slices.SortStableFunc(alike,
			func(a, b api.Waiting) int { return cmp.Compare(a.SinceNs, b.SinceNs) })
	}
	return groups
}

// AlikeTexts say what else waits likewise than the first of a group, in at most so many lines.
func AlikeTexts(alike []api.Waiting, lines int, now time.Time) (texts []string) {
	for i, w := range alike[1:] {
		if more := len(alike) - 1 - i; i == lines-1 && more > 1 {
			return append(texts, fmt.Sprintf("and %d more: sagenbaum status -o json", more))
		}
		text := fmt.Sprintf("plan %s action %s, for %s, %s", w.Plan, w.Action,
			cli.Span(now.Sub(time.Unix(0, w.SinceNs))), TriesText(w.Tries))
		if w.Problem != alike[0].Problem {
			text += ": " + w.Problem
		}
		texts = append(texts, text)
	}
	return texts
}

// TriesText counts tries.
func TriesText(n int) string {
	if n == 1 {
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}

// NotSentNext is what to do about a command that cannot be sent, beside why.
const NotSentNext = "mend what is named there, and it is sent by itself within seconds; a key of " +
	"the tenant that is missing: put its file back, and nothing is lost (docs/guide/keys.md), or, " +
	"where the tenant was erased after this copy of the data was made, sagenbaum tenant erase again"
