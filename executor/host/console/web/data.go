package web

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Rate is what happened in a second, on average, over a time.
type Rate struct {
	Records, Ended float64 // per second
	Over           time.Duration
	Spark          []float64 // records per second between two looks, the latest last
}

// Tenants are the tenants of a host.
type Tenants []Tenant

// Tenant is a line of Tenants.
type Tenant struct {
	Tenant, Mode, Problem string
	Pulse                 api.Pulse
	Rate                  Rate
}

// Overview is how a tenant is, and the few of each list that matter first.
type Overview struct {
	Status     api.Status
	Upcoming   api.Upcoming
	Rate       Rate
	Parked     []api.Plan // waiting for their owners
	Moving     []api.Plan // unwinding
	Delivering []api.Plan
	Latest     []api.Plan
	Waiting    []api.Waiting
}

// Plans is a list of plans and the filters that it comes from.
type Plans struct {
	Query    api.FindQuery
	Age      string
	Plans    []api.Plan
	Next     string // URL; empty: no more
	First    string // URL of the first page; empty: this is it
	Paused   bool   // there may be more that the filters select
	Filtered bool
	States   []string
}

// Plan is one plan in full.
type Plan struct {
	Tree
	Undos  []api.Undo // every attempt
	Why    api.Why
	Leases []Lease
	Sealed bool // it has sealed values
}

// Lease is a lease and what it is held for.
type Lease struct {
	Action string // empty: the plan
	Number int
	api.Lease
}

// Tree is a plan and its actions, with their places in the picture.
type Tree struct {
	Plan  api.Plan
	Rows  []Row
	Lanes int
	More  string // URL of the actions after these; empty: none
	Less  string
}

// Row is one action of a Tree.
type Row struct {
	api.Action
	Graph     graph
	Savepoint []api.Savepoint // set after it
	Tree      *Tree           // of the child plan; nil: none, or not shown
}

// stepsShown is how many actions of one plan a page shows at once.
const stepsShown = 200

// NewTree makes the picture of a plan from the action at index from on.
func NewTree(seen api.Plan, from int) *Tree {
	t := &Tree{Plan: seen}
	last := min(len(seen.Actions), from+stepsShown)
	from = min(from, last)
	if last < len(seen.Actions) {
		t.More = "?from=" + strconv.Itoa(last)
	}
	if from > 0 {
		t.Less = "?from=" + strconv.Itoa(max(0, from-stepsShown))
	}
	actions := seen.Actions[from:last]
	graphs, lanes := draw(actions)
	t.Lanes = lanes
	for i, a := range actions {
		row := Row{Action: a, Graph: graphs[i]}
		for _, sp := range seen.Savepoints {
			if sp.Actions == a.Number {
				row.Savepoint = append(row.Savepoint, sp)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Preview is what an unwind of a plan would do now.
type Preview struct {
	Preview api.Preview
	Plan    api.Plan
}

// Quarantine is the inbox: what waits for its owner.
type Quarantine struct {
	Items []Quarantined
	Next  string // URL; empty: no more
	First string
}

// Quarantined is one entry of the inbox.
type Quarantined struct {
	Plan   api.Plan
	Action api.Action
	Cut    *api.Cut // it is a lease that a cascade limit holds
	Orphan string   // its record was refused
}

// Obligation is one quarantined action in full, and the form that answers it.
type Obligation struct {
	Plan     api.Plan
	Action   api.Action
	Attempts []api.Undo
	Waiting  []api.Action // undone, or delivered, once it is answered
	Drops    []api.Action // dropped then: their deliveries were stopped before they were made
	NoRetry  string       // why it cannot be tried again now
	Forced   bool         // it could, with force
	Preview  api.Preview
}

// Reviews is the inbox of those who judge: what waits for a verdict, and the filters that it comes
// from.
type Reviews struct {
	Query    api.ReviewQuery
	Items    []api.Review
	Next     string // URL; empty: no more
	First    string
	Filtered bool
	Paused   bool // there may be more that the filters select
}

// Review is one action of which a verdict is wanted, and the form that gives it.
type Review struct {
	Plan   api.Plan
	Action api.Action
	Waits  bool // for a verdict
	Review api.Review
	Block  api.Preview // what a block would undo
}

// Leases are what falls due next, and the leases that need a look.
type Leases struct {
	Upcoming api.Upcoming
	Faulty   []string // plans with leases in error
	Cut      []api.Plan
}

// Memory is a list of facts.
type Memory struct {
	Memory api.Memory
	Query  api.FactsQuery
	Facts  []api.Fact
	Next   string // URL; empty: no more
	First  string
	States []string
}

// Fact is one fact and its history.
type Fact struct {
	Fact    api.Fact
	History api.FactHistoryAnswer
}

// Ledger is a list of commits.
type Ledger struct {
	Rows        []Record
	First, Last uint64 // of the stream
	From, Until uint64 // of this page
	Older       uint64 // Until of the page before; 0: none
	Newer       uint64
	Copy        *api.Copy
}

// Commit is one commit and its records in full.
type Commit struct {
	Sequence    uint64
	StampNs     int64
	Subject     string
	Bytes       int
	Records     int
	Rows        []Record
	Last        uint64
	Size        uint64 // of the tree
	Root        string // of the tree
	CopyProblem string // why the copy says nothing
}

// Record is one record of the ledger.
type Record struct {
	Address string
	Full    string // with the whole leaf
	StampNs int64
	Class   string // of its writer
	Name    string
	Kind    string // empty: it is no record
	Plan    string
	Action  string
	Essence string
	About   string // addresses
	Cause   string
	JSON    json.RawMessage // of the record's own page
	Problem string          // why it is no record, or breaks the format
	Refused string          // what the fold said
	Void    bool
	Proof   string // same, differs, missing; of the record's own page
	Leaf    uint64 // its index in the tree

	More     int // not 0: this line is about so many further records of a commit
	Sequence uint64
}

// Capabilities are what workers undo, and who waits for them.
type Capabilities struct {
	List    []api.Capability
	Omitted bool
	Waiting map[string][]api.Waiting // by the capability that is asked
	None    []string                 // of these, in order
}

// Health is how the executor of a tenant is.
type Health struct {
	Status  api.Status
	Memory  api.Memory
	Refused []api.Refused
	Rate    Rate
	Version string
}

// SignIn is the page where a user signs in.
type SignIn struct {
	Next    string
	Name    string // as it was given before
	Wrong   bool
	Wait    string // too many tokens were shown: how long to wait, in seconds
	Reader  bool   // reading needs no sign-in
	OldForm bool   // there are users whose token says the name, too

	Provider string // host of the provider where users may sign in, too; empty: none
}

// Sessions are those who have signed in.
type Sessions struct {
	Rows    []Session
	More    int    // that are not shown
	Problem string // with the file of users; empty: none
}

// Session is a line of Sessions.
type Session struct {
	ID, User, May, From string
	By                  string // token or provider
	SinceNs             int64
	SeenNs              int64
	EndsNs              int64
	Own                 bool // this page is asked for under it
}

// Failure is a page that cannot be shown, or an action that was not done.
type Failure struct {
	Status int // of HTTP
	Text   string
	Hint   string // what to do; may be empty
}
