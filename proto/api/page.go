package api

import "fmt"

// PageDefault is the hook of a contract that names none, PageOperators that of what
// concerns those who run the executor; without a webhook of its own it has the default's.
const (
	PageDefault   = "default"
	PageOperators = "operators"
)

// Kinds of a Page.
const (
	PageQuarantined   = "quarantined"
	PageCommitWaits   = "commit_waits" // an action in doubt keeps its plan from being committed
	PageActClaimed    = "act_claimed"  // a record that was refused claims an act; about a plan
	PageWindowClosing = "undo_window_closing"
	PageCascadeCut    = "cascade_cut"
	PageVerdictWanted = "verdict_wanted" // an action waits for a supervisor's verdict
	PageStuckWorker   = "stuck_worker"   // no one serves a command, or a worker says working for long
	PageClockGuard    = "clock_guard"    // no deadline fires until the clocks agree
)

// Page calls an owner to an action. It is sent until its hook has taken it; ID is
// the same each time, and its own for each quarantine.
type Page struct {
	// address of the record that it is about; of stuck_worker and clock_guard a name of its own
	ID string `json:"id"`
	// quarantined, commit_waits, act_claimed, undo_window_closing, cascade_cut, verdict_wanted,
	// stuck_worker, clock_guard
	Kind       string `json:"kind"`
	Hook       string `json:"hook"`
	Tenant     string `json:"tenant"`
	Plan       string `json:"plan"` // empty: clock_guard
	Action     string `json:"action,omitempty"`
	Capability string `json:"capability,omitempty"`
	Label      string `json:"label,omitempty"`
	Owner      string `json:"owner,omitempty"`
	Agent      string `json:"agent"`
	Reason     string `json:"reason"`
	AtNs       int64  `json:"at_ns"`
	ClosesNs   int64  `json:"closes_ns,omitempty"` // undo_window_closing
	// no one has taken it on its own hook: operators get it, too
	Escalated bool `json:"escalated,omitempty"`
}

// Taking is what whoever takes a page says: its id.
type Taking struct {
	ID string `json:"id"`
	By string `json:"by"`
	// Stream is set in the acknowledgment of a stream that stores pages. It has heard
	// the page and no one has.
	Stream string `json:"stream"`
}

// ReadTaking reads a reply to a page as ReadReply reads that to a command: a field that cannot
// be read costs only itself. The error is that of a text that is no reply.
func ReadTaking(text []byte) (t Taking, unread []*Mismatch, err error) {
	f, err := readFields(text, "taking")
	if err != nil {
		return t, nil, fmt.Errorf("the reply is not JSON: %w", err)
	}
	t = Taking{ID: f.text("id"), By: f.text("by"), Stream: f.text("stream")}
	return t, f.end(), nil
}
