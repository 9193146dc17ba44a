package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Contracts asks for all published contracts that a question means.
func (c *Client) Contracts(ctx context.Context, q api.ContractQuery) ([]api.Contract, error) {
	all, _, err := Batches(api.ContractLs.Name, Listing{Ctx: ctx, Client: c}, math.MaxInt, nil,
		ContractBatch(&q), nil)
	return all, err
}

// ContractBatch asks for one batch of published contracts.
func ContractBatch(q *api.ContractQuery) func(Listing) ([]api.Contract, string, error) {
	return func(in Listing) ([]api.Contract, string, error) {
		q.After, q.Limit = in.After, in.Limit
		answer, err := Ask(in.Ctx, in.Client, api.ContractLs, *q)
		return answer.Contracts, answer.Next, err
	}
}

// FactBatch asks for one batch of facts.
func FactBatch(q *api.FactsQuery) func(Listing) ([]api.Fact, string, error) {
	return func(in Listing) ([]api.Fact, string, error) {
		q.After, q.Limit = in.After, in.Limit
		answer, err := Ask(in.Ctx, in.Client, api.FactLs, *q)
		return answer.Facts, answer.Next, err
	}
}

// FamilyMax bounds the child plans that are asked for to show one plan.
const FamilyMax = 100

// Family is a plan with the plans that are part of it, as far as they were asked
// for.
type Family struct {
	Root     api.Plan
	Children map[string]api.Plan // by id
}

// Family asks for the child plans of a plan, theirs, and so on: nearest first, at
// most familyMax.
func (c *Client) Family(ctx context.Context, root api.Plan) (Family, error) {
	f := Family{Root: root, Children: map[string]api.Plan{}}
	todo := ChildrenOf(root)
	for len(todo) > 0 && len(f.Children) < FamilyMax {
		id := todo[0]
		todo = todo[1:]
		if _, known := f.Children[id]; known || id == root.Plan {
			continue
		}
		child, err := c.Plan(ctx, id, 0)
		if err != nil {
			return f, err
		}
		f.Children[id] = child
		todo = append(todo, ChildrenOf(child)...)
	}
	return f, nil
}

// ChildrenOf are the ids of the plans that are part of a plan, in the order of its actions.
func ChildrenOf(plan api.Plan) (ids []string) {
	for _, a := range plan.Actions {
		if a.Child != "" {
			ids = append(ids, a.Child)
		}
	}
	return ids
}

// Plans are all of a family that are known, each once, parents before children.
func (f Family) Plans() []api.Plan {
	list := []api.Plan{f.Root}
	seen := map[string]bool{f.Root.Plan: true}
	for i := 0; i < len(list); i++ {
		for _, id := range ChildrenOf(list[i]) {
			if child, known := f.Children[id]; known && !seen[id] {
				seen[id] = true
				list = append(list, child)
			}
		}
	}
	return list
}

// Quarantined reports whether something in a family waits for its owner: an action,
// or a lease that a cascade limit holds.
func (f Family) Quarantined() bool {
	for _, plan := range f.Plans() {
		if plan.Quarantined > 0 || len(plan.Cuts) > 0 || plan.State == ledger.StateQuarantined {
			return true
		}
	}
	return false
}

// ForPeople is a family in which every string is printable.
func (f Family) ForPeople() Family {
	clean := Family{Root: ForPeople(f.Root), Children: map[string]api.Plan{}}
	for _, child := range f.Children {
		child = ForPeople(child)
		clean.Children[child.Plan] = child
	}
	return clean
}

// RepairWait is how long a repair, a scrub or a rebuild is waited for at most.
const RepairWait = time.Hour

// Administer asks the tenant's host for work on its copies of the ledger.
func Administer[Q, A any](cmd *cobra.Command, s *Settings, limit time.Duration, doing string,
	verb api.Verb[Q, A], question Q) (answer A, err error) {
	err = s.administer(cmd, limit, doing, verb.Call, question, &answer)
	return answer, err
}

func (s *Settings) administer(cmd *cobra.Command, limit time.Duration, doing string,
	verb api.Call, question, answer any) error {
	return s.With(func(c *Client) error {
		// A host that stands by leaves the question to the holder, and there may be none.
		switch v, err := c.Status(cmd.Context()); {
		case noAnswer(err):
			return Failed(doing, c.WithoutHolder(cmd.Context(), err))
		case err == nil && v.Mode == api.ModeStandby:
			return Failed(doing, Fail(ExitNoServer, "sagenbaum doctor", "no host holds tenant %s: %s",
				c.Tenant, v.Problem))
		}
		c.Timeout = limit
		ctx, stop := context.WithCancelCause(cmd.Context())
		defer stop(nil)
		// A host that was started again knows nothing of the question, and the wait may be an hour.
		c.Conn.SetReconnectHandler(func(*nats.Conn) {
			stop(Fail(ExitNoServer, "sagenbaum status, then ask again", "the connection to %s was lost and "+
				"is back, as when the server is started again: whether it was done is not known", c.Server))
		})
		err := lateWork(c.ask(ctx, verb, question, answer))
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Failed(doing, err)
	})
}

// Workers asks which capabilities undo what is held.
func (c *Client) Workers(ctx context.Context) (api.WorkersAnswer, error) {
	return Ask(ctx, c, api.WorkerLs, api.Nothing{})
}

// Tenants are those that a host serves, and those that it has forgotten, by name: any host answers
// for its own.
func (c *Client) Tenants(ctx context.Context) (answer api.TenantsAnswer, err error) {
	err = c.askOn(ctx, api.ServerSubject(api.TenantLs), "the tenants", api.Nothing{}, &answer)
	if noAnswer(err) {
		answer.Tenants, err = c.ledgers(ctx) // hosts of an earlier version, or none
	}
	return answer, err
}

// ledgers are the tenants that have a ledger. It asks JetStream for the names of streams,
// which only users of the hosts' account may.
func (c *Client) ledgers(ctx context.Context) (names []string, err error) {
	ctx, cancel := c.Within(ctx)
	defer cancel()
	for {
		question := fmt.Sprintf(`{"offset":%d,"subject":"saga.*.executor"}`, len(names))
		reply, err := c.Conn.RequestWithContext(ctx, "$JS.API.STREAM.NAMES", []byte(question))
		if err != nil {
			return nil, c.Explain("the ledgers", err)
		}
		var page struct {
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		if err := json.Unmarshal(reply.Data, &page); err != nil {
			return nil, fmt.Errorf("cannot read the names of ledgers: %w", err)
		}
		for _, stream := range page.Streams {
			if name, ours := strings.CutPrefix(stream, jetstream.StreamName("")); ours &&
				ledger.ValidToken(name) {
				names = append(names, name)
			}
		}
		if len(page.Streams) == 0 || len(names) >= page.Total {
			slices.Sort(names)
			return names, nil
		}
	}
}

// noAnswer reports whether no one has answered a question.
func noAnswer(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Code == ExitNoServer
}

// RebuildWait is how long `memory rebuild` waits at most.
const RebuildWait = time.Hour

// lateWork names the flag that such work is waited for by.
func lateWork(err error) error {
	var f *Failure
	if errors.As(err, &f) && f.Code == ExitNoServer && strings.Contains(f.Hint, "--timeout") {
		return Fail(f.Code, "sagenbaum doctor, or a longer --wait-timeout", "%s", f.Text)
	}
	return err
}

// PageSize is how many entries one question asks for.
const PageSize = 200

// Plans asks for at most limit plans.
func (c *Client) Plans(
	ctx context.Context, q api.Filter, limit int,
) (all api.PlansAnswer, err error) {
	ask, _ := PlanList(&q)
	all.Plans, all.Next, err = Batches(api.PlanLs.Name,
		Listing{Ctx: ctx, Client: c, After: q.After}, limit, nil, ask, nil)
	return all, err
}

// Quarantine asks for at most limit plans that wait for their owner.
func (c *Client) Quarantine(ctx context.Context, limit int) (all api.PlansAnswer, err error) {
	all.Plans, all.Next, err = Batches(api.QuarantineLs.Name, Listing{Ctx: ctx, Client: c}, limit,
		nil, QuarantineBatch, nil)
	return all, err
}

// Found asks for at most limit plans that are found by what they are, and where they go on.
func (c *Client) Found(
	ctx context.Context, q api.FindQuery, limit int,
) (plans []api.Plan, next string, err error) {
	return Batches(api.PlanFind.Name, Listing{Ctx: ctx, Client: c}, limit, nil,
		func(in Listing) ([]api.Plan, string, error) {
			q.After, q.Limit = in.After, in.Limit
			answer, err := Ask(in.Ctx, in.Client, api.PlanFind, q)
			return answer.Plans, answer.Next, err
		}, nil)
}

// QuarantineBatch asks for one batch of plans that wait for their owner.
func QuarantineBatch(in Listing) ([]api.Plan, string, error) {
	answer, err := Ask(in.Ctx, in.Client, api.QuarantineLs,
		api.ListQuery{After: in.After, Limit: in.Limit})
	return answer.Plans, answer.Next, err
}

// PlanList asks for one batch of the list of plans, and says where it goes on after a plan of
// it: a host of before there were such places goes on after the plan's id.
func PlanList(
	q *api.Filter,
) (ask func(Listing) ([]api.Plan, string, error), place func(api.Plan) string) {
	places := map[string]string{} // of the last batch, by plan
	ask = func(in Listing) ([]api.Plan, string, error) {
		q.After, q.Limit = in.After, in.Limit
		answer, err := Ask(in.Ctx, in.Client, api.PlanLs, *q)
		clear(places)
		for i := range answer.Plans {
			if answer.AsOf != 0 {
				places[answer.Plans[i].Plan] = view.PlaceOf(answer, i)
			}
		}
		return answer.Plans, answer.Next, err
	}
	return ask, func(p api.Plan) string { return cmp.Or(places[p.Plan], p.Plan) }
}

// PlaceOfPlan is where a list of plans goes on that ends with a plan.
func PlaceOfPlan(p api.Plan) string { return p.Plan }

// PlansData is what a list of plans prints as data.
func PlansData(plans []api.Plan, next string) any {
	return api.PlansAnswer{Plans: plans, Next: next}
}

// CheckUndoQuery refuses a list of undos that names neither a plan nor a capability, or both.
func CheckUndoQuery(q api.UndoQuery) error {
	const which = "--plan PLAN [--action ACTION], or --capability NAME"
	switch {
	case (q.Plan == "") == (q.Capability == ""):
		return Fail(ExitUsage, which, "undos of what?")
	case q.Action != "" && q.Plan == "":
		return Fail(ExitUsage, which, "--action is one of a plan")
	case q.Capability != "" && !ledger.ValidCapability(q.Capability):
		return Fail(ExitUsage, "--capability NAME, as in git.branch.create",
			"%q is not a capability", q.Capability)
	}
	return nil
}

// Undos asks for at most limit attempts.
func (c *Client) Undos(
	ctx context.Context, q api.UndoQuery, limit int,
) (all api.UndosAnswer, err error) {
	all.Undos, all.Next, err = Batches(api.UndoLs.Name, Listing{Ctx: ctx, Client: c, After: q.After},
		limit, nil, UndoBatch(&q), nil)
	return all, err
}

// UndoBatch asks for one batch of attempts.
func UndoBatch(q *api.UndoQuery) func(Listing) ([]api.Undo, string, error) {
	return func(in Listing) ([]api.Undo, string, error) {
		q.After, q.Limit = in.After, in.Limit
		answer, err := Ask(in.Ctx, in.Client, api.UndoLs, *q)
		return answer.Undos, answer.Next, err
	}
}
