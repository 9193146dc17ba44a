package api

// Filter selects plans; empty fields select all.
type Filter struct {
	State string `json:"state,omitempty"`
	Agent string `json:"agent,omitempty"`
	Label string `json:"label,omitempty"`
	// After is the Next of the batch before, or a plan id; the batch starts after it.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"` // 1..1000, default 100
}

// PlansAnswer answers plan.ls (to a Filter) and quarantine.ls.
type PlansAnswer struct {
	Plans []Plan `json:"plans"`
	Next  string `json:"next,omitempty"` // goes into After; empty: no more
	// AsOf of plan.ls is the sequence at which the list began, as in Next.
	AsOf uint64 `json:"as_of,omitempty"`
	// Moving of plan.ls is how many of the plans come first because they are being undone.
	Moving int `json:"moving,omitempty"`
}

// FindQuery asks for plans in order of opening, the latest first (plan.find). Empty
// fields select all.
type FindQuery struct {
	State      string `json:"state,omitempty"` // as Plan.State
	Agent      string `json:"agent,omitempty"`
	Capability string `json:"capability,omitempty"` // of one of its actions
	Label      string `json:"label,omitempty"`      // the label, or key=value of one of the labels
	Text       string `json:"text,omitempty"`       // what its id or its label begins with
	FromNs     int64  `json:"from_ns,omitempty"`    // opened at or after this
	UntilNs    int64  `json:"until_ns,omitempty"`   // opened before this
	After      string `json:"after,omitempty"`      // Next of the batch before
	Limit      int    `json:"limit,omitempty"`      // 1..1000, default 100
}

// FindAnswer answers plan.find.
type FindAnswer struct {
	Plans []Plan `json:"plans"`
	Next  string `json:"next,omitempty"` // goes into After; empty: no more
	// Paused is set where the batch ends because it has looked at enough plans, not
	// because it is full.
	Paused bool `json:"paused,omitempty"`
}

// ListQuery asks for a list: quarantine.ls, refused.ls.
type ListQuery struct {
	// After: quarantine.ls: plan id; the batch starts after it.
	After         string `json:"after,omitempty"`
	AfterSequence uint64 `json:"after_sequence,omitempty"` // refused.ls: after this one
	Limit         int    `json:"limit,omitempty"`          // 1..1000, default 100
}

// RefusedAnswer answers refused.ls.
type RefusedAnswer struct {
	Refused []Refused `json:"refused"`
}
