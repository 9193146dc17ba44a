package web

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAPageSaysWhyACommandWaits: a worker that is started changes nothing for one that cannot be
// sent.
func TestAPageSaysWhyACommandWaits(t *testing.T) {
	t.Parallel()
	const missing = "the key of the tenant is missing"
	of := api.Waiting{Capability: "payments.refund", Plan: "p", Action: "charge", Tries: 3}
	with := func(change func(*api.Waiting)) api.Waiting {
		w := of
		change(&w)
		return w
	}
	for name, c := range map[string]struct {
		waiting     api.Waiting
		says, never string
	}{
		"none serves it": {of, "no worker|no worker serves it, asked 3 times", "not sent"},
		"another version": {with(func(w *api.Waiting) { w.Version = "v2" }),
			"no worker of version \"v2\" serves it", "not sent"},
		"it is not sent": {with(func(w *api.Waiting) { w.Problem = missing }), "not sent|" + missing, "no worker"},
		"it is worked on": {with(func(w *api.Waiting) { w.Working, w.AgainNs = true, 1e18 }),
			"works on|still working; asked again at 2001-09-09 01:46:40Z", "no worker"},
		"a handler": {with(func(w *api.Waiting) { w.Handler = "function undo of agent a" }),
			"no process offers function undo of agent a", "no worker"},
		"a handler's is not sent": {with(func(w *api.Waiting) { w.Handler, w.Problem = "function undo", missing }),
			"not sent|" + missing, "no worker|no process"},
	} {
		for _, body := range []Body{Overview{Waiting: []api.Waiting{c.waiting}},
			Capabilities{Waiting: map[string][]api.Waiting{of.Capability: {c.waiting}},
				None: []string{of.Capability}}} {
			page := read(t, string((&Page{Tenant: "default", Operator: "ana"}).Render(body)))
			shown := strings.Join(strings.Fields(strings.Join(page.texts, " ")), " ")
			for _, want := range strings.Split(c.says, "|") {
				if !strings.Contains(shown, want) {
					t.Errorf("%s: %T does not say %q: %s", name, body, want, shown)
				}
			}
			for _, not := range strings.Split(c.never, "|") {
				if strings.Contains(shown, not) {
					t.Errorf("%s: %T says %q: %s", name, body, not, shown)
				}
			}
		}
	}
}
