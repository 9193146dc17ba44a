package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// start leads to the tenant of a host that has one, and else to all of them.
func (v *visit) start() error {
	to := "/tenants"
	if len(v.page.Tenants) == 1 {
		to = "/t/" + v.page.Tenants[0] + "/"
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

func (v *visit) tenants() error {
	var rows web.Tenants
	for _, tenant := range v.page.Tenants {
		row := web.Tenant{Tenant: tenant, Rate: v.s.rates.of(tenant)}
		h, err := answered(v, tenant, api.TenantHost, api.Nothing{})
		if err == nil {
			row.Mode, row.Problem = h.Host.Mode, h.Host.Problem
		}
		if row.Pulse, err = v.host.Pulse(tenant); err != nil {
			row.Problem = err.Error()
		}
		rows = append(rows, row)
	}
	return v.show("Tenants", "tenants", rows)
}

// overviewRows bounds each list of the overview.
const overviewRows = 6

func (v *visit) overview() error {
	body := web.Overview{Rate: v.s.rates.of(v.page.Tenant)}
	status := look(v, api.TenantStatus, api.Nothing{})
	body.Status, body.Waiting = status.Status, status.Status.Waiting
	body.Waiting = body.Waiting[:min(len(body.Waiting), overviewRows)]
	body.Upcoming = look(
		v, api.DueLs, api.ListQuery{Limit: overviewRows},
	).Upcoming
	for _, list := range []struct {
		to    *[]api.Plan
		query api.FindQuery
	}{
		{&body.Parked, api.FindQuery{State: ledger.StateQuarantined}},
		{&body.Moving, api.FindQuery{State: ledger.StateUnwinding}},
		{&body.Delivering, api.FindQuery{State: ledger.StateDelivering}},
		{&body.Latest, api.FindQuery{}},
	} {
		list.query.Limit = overviewRows
		*list.to = look(v, api.PlanFind, list.query).Plans
	}
	v.live()
	return v.show("Overview", "overview", body)
}

// ages are the filters by age; those with a minus sign are older than that.
var ages = map[string]time.Duration{
	"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "-24h": -24 * time.Hour,
	"-7d": -7 * 24 * time.Hour,
}

var planStates = []string{
	ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined,
	ledger.StateCommitted, ledger.StateCompensated, ledger.StateFailed, ledger.StateResolved,
	ledger.StateDelivering, ledger.StateDelivered,
}

func (v *visit) plans() error {
	query := v.r.URL.Query()
	q := api.FindQuery{
		State: query.Get("state"), Agent: query.Get("agent"), Capability: query.Get("capability"),
		Label: query.Get("label"), Text: query.Get("q"), After: query.Get("after"), Limit: pageRows,
	}
	body := web.Plans{Query: q, Age: query.Get("age"), States: planStates}
	now := time.Unix(0, v.page.NowNs)
	switch age := ages[body.Age]; {
	case age > 0:
		q.FromNs = now.Add(-age).UnixNano()
	case age < 0:
		q.UntilNs = now.Add(age).UnixNano()
	}
	answer := filtered(v, api.PlanFind, q)
	body.Plans, body.Paused = answer.Plans, answer.Paused
	body.Filtered = q.State+q.Agent+q.Capability+q.Label+q.Text+body.Age != ""
	body.Next, body.First = v.paging(answer.Next)
	return v.show("Plans", "plans", body)
}

// paging are links to the next and to the first page of a list; the first follows the fold.
func (v *visit) paging(after string) (next, first string) {
	query := v.r.URL.Query()
	if after != "" {
		next = with(query, "after", after)
	}
	if query.Get("after") != "" {
		return next, with(query, "after", "")
	}
	v.live()
	return next, ""
}

// with is a query with one value of another kind, as a link.
func with(query url.Values, name, value string) string {
	other := url.Values{}
	for k, list := range query {
		if k != name && k != "said" && len(list) > 0 && list[0] != "" {
			other.Set(k, list[0])
		}
	}
	if value != "" {
		other.Set(name, value)
	}
	return "?" + other.Encode()
}

// dueRows bounds the list of what falls due.
const dueRows = 100

func (v *visit) leases() error {
	upcoming := look(v, api.DueLs, api.ListQuery{Limit: dueRows})
	status := look(v, api.TenantStatus, api.Nothing{})
	body := web.Leases{Upcoming: upcoming.Upcoming, Faulty: status.Status.FaultyPlans}
	if status.Status.Cut > 0 {
		parked := look(v, api.QuarantineLs, api.ListQuery{Limit: pageRows})
		for _, p := range parked.Plans {
			if len(p.Cuts) > 0 {
				body.Cut = append(body.Cut, p)
			}
		}
	}
	v.live()
	return v.show("Leases", "leases", body)
}

func (v *visit) memory() error {
	query := v.r.URL.Query()
	q := api.FactsQuery{
		Prefix: query.Get("prefix"), State: query.Get("state"), After: query.Get("after"),
		Limit: pageRows,
	}
	memory := look(v, api.MemoryStatus, api.Nothing{})
	facts := filtered(v, api.FactLs, q)
	body := web.Memory{
		Memory: memory.Memory, Query: q, Facts: facts.Facts,
		States: []string{api.FactInMemory, api.FactEvicted, api.FactRetracted},
	}
	body.Next, body.First = v.paging(facts.Next)
	return v.show("Working memory", "memory", body)
}

func (v *visit) fact() error {
	key := v.r.URL.Query().Get("key")
	fact := look(v, api.FactGet, api.FactQuery{Key: key})
	history := look(v, api.FactHistory, api.FactQuery{Key: key})
	slices.Reverse(history.Events)
	v.live()
	return v.show("Fact "+key, "memory", web.Fact{Fact: fact.Fact, History: history})
}

func (v *visit) capabilities() error {
	list := look(v, api.CapabilityLs, api.Nothing{})
	status := look(v, api.TenantStatus, api.Nothing{})
	body := web.Capabilities{
		List: list.Capabilities, Omitted: list.Omitted, Waiting: map[string][]api.Waiting{},
	}
	for _, w := range status.Status.Waiting {
		if len(body.Waiting[w.Capability]) == 0 {
			body.None = append(body.None, w.Capability)
		}
		if len(body.Waiting[w.Capability]) < pageRows {
			body.Waiting[w.Capability] = append(body.Waiting[w.Capability], w)
		}
	}
	slices.Sort(body.None)
	v.live()
	return v.show("Workers and capabilities", "capabilities", body)
}

// refusedBack is how many commits back the health page looks for refused records.
const refusedBack = 5000

func (v *visit) health() error {
	status := look(v, api.TenantStatus, api.Nothing{})
	memory := look(v, api.MemoryStatus, api.Nothing{})
	refused := look(v, api.RefusedLs, api.ListQuery{
		AfterSequence: max(status.Status.Applied, refusedBack) - refusedBack, Limit: pageRows,
	})
	slices.Reverse(refused.Refused)
	v.live()
	return v.show("Health", "health", web.Health{
		Status: status.Status, Memory: memory.Memory, Refused: refused.Refused,
		Rate: v.s.rates.of(v.page.Tenant), Version: v.s.cfg.Version,
	})
}

// sequenceOf reads a sequence from an address of this console.
func sequenceOf(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, failed(
			http.StatusNotFound, "Sequences count from 1.", "%q is no sequence of a ledger", text,
		)
	}
	return n, nil
}
