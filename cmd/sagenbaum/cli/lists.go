package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// Contracts asks page after page for published contracts.
func (c *Client) Contracts(ctx context.Context, q view.ContractQuery) ([]view.Contract,
	error) {
	var all []view.Contract
	for {
		q.Limit = PageSize
		var page view.ContractsAnswer
		if err := c.Ask(ctx, "contract.ls", q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Contracts...)
		if page.Next == "" {
			return all, nil
		}
		if page.Next <= q.After {
			return nil, Fail(ExitFailed, "sagenbaum doctor", "contract.ls goes in a circle at %s",
				page.Next)
		}
		q.After = page.Next
	}
}

// Facts asks page after page until it has limit facts or there are no more.
func (c *Client) Facts(ctx context.Context, q view.FactsQuery, limit int) (view.FactsAnswer,
	error) {
	return c.FactsWhere(ctx, q, limit, nil)
}

// FactsWhere is facts with those only that a filter picks.
func (c *Client) FactsWhere(ctx context.Context, q view.FactsQuery, limit int,
	only *ListFilter) (view.FactsAnswer, error) {
	all := view.FactsAnswer{Facts: []view.Fact{}}
	for {
		q.Limit = pageOf(limit-len(all.Facts), only)
		var page view.FactsAnswer
		if err := c.Ask(ctx, "fact.ls", q, &page); err != nil {
			return all, err
		}
		all.Facts, all.Next = append(all.Facts, Picked(only, page.Facts)...), page.Next
		if len(all.Facts) > limit {
			all.Facts = all.Facts[:limit]
			all.Next = all.Facts[limit-1].Key
		}
		if page.Next == "" || len(all.Facts) >= limit {
			return all, nil
		}
		if page.Next <= q.After { // this would never end
			return all, Fail(ExitFailed, "sagenbaum doctor",
				"the pages of fact.ls go in a circle at %q", page.Next)
		}
		q.After = page.Next
	}
}

// FamilyMax bounds the child plans that are asked for to show one plan.
const FamilyMax = 100

// Family is a plan with the plans that are part of it, as far as they were asked
// for.
type Family struct {
	Root     view.Plan
	Children map[string]view.Plan // by id
}

// Family asks for the child plans of a plan, theirs, and so on: nearest first, at
// most familyMax.
func (c *Client) Family(ctx context.Context, root view.Plan) (Family, error) {
	f := Family{Root: root, Children: map[string]view.Plan{}}
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
func ChildrenOf(plan view.Plan) (ids []string) {
	for _, a := range plan.Actions {
		if a.Child != "" {
			ids = append(ids, a.Child)
		}
	}
	return ids
}

// Plans are all of a family that are known, each once, parents before children.
func (f Family) Plans() []view.Plan {
	list := []view.Plan{f.Root}
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
	clean := Family{Root: ForPeople(f.Root), Children: map[string]view.Plan{}}
	for _, child := range f.Children {
		child = ForPeople(child)
		clean.Children[child.Plan] = child
	}
	return clean
}

// RepairWait is how long a repair, a scrub or a rebuild is waited for at most.
const RepairWait = time.Hour

// Administer asks the tenant's host for work on its copies of the ledger.
func (s *Settings) Administer(cmd *cobra.Command, limit time.Duration, doing, verb string, question,
	answer any) error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	c.Timeout = limit
	return Failed(doing, LateRebuild(c.Administer(cmd.Context(), verb, question, answer)))
}

// Workers asks which capabilities undo what is held.
func (c *Client) Workers(ctx context.Context) (view.WorkersAnswer, error) {
	answer := view.WorkersAnswer{}
	err := c.Ask(ctx, "worker.ls", struct{}{}, &answer)
	return answer, err
}

// Tenants are those that have a ledger at the server, by name. It asks JetStream for
// the names of streams, which a user may not be allowed to.
func (c *Client) Tenants(ctx context.Context) (names []string, err error) {
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

// RebuildWait is how long `memory rebuild` waits at most.
const RebuildWait = time.Hour

// LateRebuild names the flag that a rebuild waits by.
func LateRebuild(err error) error {
	var f *Failure
	if errors.As(err, &f) && f.Code == ExitNoServer && strings.Contains(f.Hint, "--timeout") {
		return Fail(f.Code, "sagenbaum doctor, or a longer --wait-timeout", "%s", f.Text)
	}
	return err
}

// PageSize is how many plans one question asks for.
const PageSize = 200

// Plans asks page after page until it has limit plans or there are no more.
func (c *Client) Plans(ctx context.Context, verb string, q view.Filter,
	limit int) (view.PlansAnswer, error) {
	return c.PlansWhere(ctx, verb, q, limit, nil)
}

// PlansWhere is plans with those only that a filter picks.
func (c *Client) PlansWhere(ctx context.Context, verb string, q view.Filter, limit int,
	only *ListFilter) (view.PlansAnswer, error) {
	all := view.PlansAnswer{Plans: []view.Plan{}}
	for {
		q.Limit = pageOf(limit-len(all.Plans), only)
		var page view.PlansAnswer
		if err := c.Ask(ctx, verb, q, &page); err != nil {
			return all, err
		}
		all.Plans, all.Next = append(all.Plans, Picked(only, page.Plans)...), page.Next
		if len(all.Plans) > limit {
			all.Plans = all.Plans[:limit]
			all.Next = all.Plans[limit-1].Plan
		}
		if page.Next == "" || len(all.Plans) >= limit {
			return all, nil
		}
		if page.Next <= q.After { // ids come in order, so this would never end
			return all, Fail(ExitFailed, "sagenbaum doctor", "the pages of %s go in a circle at %s",
				verb, page.Next)
		}
		q.After = page.Next
	}
}

// CheckUndoQuery refuses a list of undos that names neither a plan nor a capability, or both.
func CheckUndoQuery(q view.UndoQuery, limit int) error {
	const which = "--plan PLAN [--action ACTION], or --capability NAME"
	switch {
	case (q.Plan == "") == (q.Capability == ""):
		return Fail(ExitUsage, which, "undos of what?")
	case q.Action != "" && q.Plan == "":
		return Fail(ExitUsage, which, "--action is one of a plan")
	case q.Capability != "" && !ledger.ValidCapability(q.Capability):
		return Fail(ExitUsage, "--capability NAME, as in git.branch.create",
			"%q is not a capability", q.Capability)
	case limit < 1:
		return Fail(ExitUsage, "--limit 100", "a limit of %d lists nothing", limit)
	}
	return nil
}

// Undos asks page after page until it has limit attempts or there are no more.
func (c *Client) Undos(ctx context.Context, q view.UndoQuery, limit int) (view.UndosAnswer,
	error) {
	return c.UndosWhere(ctx, q, limit, nil)
}

// UndosWhere is undos with those only that a filter picks; with one it may return more
// than limit, up to the end of a page.
func (c *Client) UndosWhere(ctx context.Context, q view.UndoQuery, limit int,
	only *ListFilter) (view.UndosAnswer, error) {
	all := view.UndosAnswer{Undos: []view.Undo{}}
	for {
		q.Limit = pageOf(limit-len(all.Undos), only)
		var page view.UndosAnswer
		if err := c.Ask(ctx, "undo.ls", q, &page); err != nil {
			return all, err
		}
		all.Undos, all.Next = append(all.Undos, Picked(only, page.Undos)...), page.Next
		if page.Next == "" || len(all.Undos) >= limit {
			return all, nil
		}
		if len(page.Undos) == 0 || page.Next == q.After { // this would never end
			return all, Fail(ExitFailed, "sagenbaum doctor",
				"the pages of undo.ls go in a circle at %s", page.Next)
		}
		q.After = page.Next
	}
}
