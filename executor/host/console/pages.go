package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
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

type tenantRow struct {
	Tenant, Mode, Problem string
	Pulse                 executor.Pulse
	Rate                  Rate
}

func (v *visit) tenants() error {
	var rows []tenantRow
	for _, tenant := range v.page.Tenants {
		row := tenantRow{Tenant: tenant, Rate: v.s.rates.of(tenant)}
		answer, err := v.host.Ask(tenant, "host", struct{}{})
		if h, ok := answer.(view.HostAnswer); ok && err == nil {
			row.Mode, row.Problem = h.Host.Mode, h.Host.Problem
		}
		if row.Pulse, err = v.host.Pulse(tenant); err != nil {
			row.Problem = err.Error()
		}
		rows = append(rows, row)
	}
	return v.show("tenants", "Tenants", "tenants", rows)
}

type overviewBody struct {
	Status   view.Status
	Upcoming view.Upcoming
	Rate     Rate
	Parked   []view.Plan // waiting for their owners, some
	Moving   []view.Plan // unwinding, some
	Latest   []view.Plan
	Waiting  []view.Waiting
}

// overviewRows bounds each list of the overview.
const overviewRows = 6

func (v *visit) overview() error {
	body := overviewBody{Rate: v.s.rates.of(v.page.Tenant)}
	status, err := ask[view.StatusAnswer](v, "status", struct{}{})
	if err != nil {
		return err
	}
	body.Status, body.Waiting = status.Status, status.Status.Waiting
	body.Waiting = body.Waiting[:min(len(body.Waiting), overviewRows)]
	upcoming, err := ask[view.UpcomingAnswer](v, "due.ls", view.ListQuery{Limit: overviewRows})
	if err != nil {
		return err
	}
	body.Upcoming = upcoming.Upcoming
	for _, list := range []struct {
		to    *[]view.Plan
		query view.FindQuery
	}{
		{&body.Parked, view.FindQuery{State: ledger.StateQuarantined}},
		{&body.Moving, view.FindQuery{State: ledger.StateUnwinding}},
		{&body.Latest, view.FindQuery{}},
	} {
		list.query.Limit = overviewRows
		answer, err := ask[view.FindAnswer](v, "plan.find", list.query)
		if err != nil {
			return err
		}
		*list.to = answer.Plans
	}
	v.live()
	return v.show("overview", "Overview", "overview", body)
}

type plansBody struct {
	Query        view.FindQuery
	Age          string
	Plans        []view.Plan
	Next         string // URL; empty: no more
	First        string // URL of the first page; empty: this is it
	Paused       bool
	Filtered     bool
	States       []string
	Capabilities []string
}

// ages are the filters by age; those with a minus sign are older than that.
var ages = map[string]time.Duration{
	"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "-24h": -24 * time.Hour,
	"-7d": -7 * 24 * time.Hour,
}

var planStates = []string{
	ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined,
	ledger.StateCommitted, ledger.StateCompensated, ledger.StateFailed, ledger.StateResolved,
}

func (v *visit) plans() error {
	query := v.r.URL.Query()
	q := view.FindQuery{
		State: query.Get("state"), Agent: query.Get("agent"), Capability: query.Get("capability"),
		Label: query.Get("label"), Text: query.Get("q"), After: query.Get("after"), Limit: pageRows,
	}
	body := plansBody{Query: q, Age: query.Get("age"), States: planStates}
	now := time.Unix(0, v.page.NowNs)
	switch age := ages[body.Age]; {
	case age > 0:
		q.FromNs = now.Add(-age).UnixNano()
	case age < 0:
		q.UntilNs = now.Add(age).UnixNano()
	}
	answer, err := ask[view.FindAnswer](v, "plan.find", q)
	if err == nil && answer.Error != "" {
		err = failed(http.StatusBadRequest, "Clear the filters.", "%s", answer.Error)
	}
	if err != nil {
		return err
	}
	body.Plans, body.Paused = answer.Plans, answer.Paused
	body.Filtered = q.State+q.Agent+q.Capability+q.Label+q.Text+body.Age != ""
	if answer.Next != "" {
		body.Next = with(query, "after", answer.Next)
	}
	if q.After != "" {
		body.First = with(query, "after", "")
	} else {
		v.live()
	}
	return v.show("plans", "Plans", "plans", body)
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

type leasesBody struct {
	Upcoming view.Upcoming
	Faulty   []string // plans with leases in error
	Cut      []view.Plan
}

// dueRows bounds the list of what falls due.
const dueRows = 100

func (v *visit) leases() error {
	upcoming, err := ask[view.UpcomingAnswer](v, "due.ls", view.ListQuery{Limit: dueRows})
	if err != nil {
		return err
	}
	status, err := ask[view.StatusAnswer](v, "status", struct{}{})
	if err != nil {
		return err
	}
	body := leasesBody{Upcoming: upcoming.Upcoming, Faulty: status.Status.FaultyPlans}
	if status.Status.Cut > 0 {
		parked, err := ask[view.PlansAnswer](v, "quarantine.ls", view.ListQuery{Limit: pageRows})
		if err != nil {
			return err
		}
		for _, p := range parked.Plans {
			if len(p.Cuts) > 0 {
				body.Cut = append(body.Cut, p)
			}
		}
	}
	v.live()
	return v.show("leases", "Leases", "leases", body)
}

type memoryBody struct {
	Memory view.Memory
	Query  view.FactsQuery
	Facts  []view.Fact
	Next   string
	First  string
	States []string
}

func (v *visit) memory() error {
	query := v.r.URL.Query()
	q := view.FactsQuery{
		Prefix: query.Get("prefix"), State: query.Get("state"), After: query.Get("after"),
		Limit: pageRows,
	}
	memory, err := ask[view.MemoryAnswer](v, "memory.status", struct{}{})
	if err != nil {
		return err
	}
	facts, err := ask[view.FactsAnswer](v, "fact.ls", q)
	if err == nil && facts.Error != "" {
		err = failed(http.StatusBadRequest, "Clear the filters.", "%s", facts.Error)
	}
	if err != nil {
		return err
	}
	body := memoryBody{
		Memory: memory.Memory, Query: q, Facts: facts.Facts,
		States: []string{view.FactInMemory, view.FactEvicted, view.FactRetracted},
	}
	if facts.Next != "" {
		body.Next = with(query, "after", facts.Next)
	}
	if q.After != "" {
		body.First = with(query, "after", "")
	} else {
		v.live()
	}
	return v.show("memory", "Working memory", "memory", body)
}

type factBody struct {
	Fact    view.Fact
	History view.HistoryAnswer
}

func (v *visit) fact() error {
	key := v.r.URL.Query().Get("key")
	fact, err := ask[view.FactAnswer](v, "fact.get", view.FactQuery{Key: key})
	if err == nil {
		err = said(fact.Error)
	}
	if err != nil {
		return err
	}
	history, err := ask[view.HistoryAnswer](v, "fact.history", view.FactQuery{Key: key})
	if err == nil {
		err = said(history.Error)
	}
	if err != nil {
		return err
	}
	slices.Reverse(history.Events)
	v.live()
	return v.show("fact", "Fact "+key, "memory", factBody{fact.Fact, history})
}

type capabilitiesBody struct {
	List    []view.Capability
	Omitted bool
	Waiting map[string][]view.Waiting // by the capability that is asked
	None    []string                  // of these, that no action names
}

func (v *visit) capabilities() error {
	list, err := ask[view.CapabilitiesAnswer](v, "capability.ls", struct{}{})
	if err != nil {
		return err
	}
	status, err := ask[view.StatusAnswer](v, "status", struct{}{})
	if err != nil {
		return err
	}
	body := capabilitiesBody{
		List: list.Capabilities, Omitted: list.Omitted, Waiting: map[string][]view.Waiting{},
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
	return v.show("capabilities", "Workers and capabilities", "capabilities", body)
}

type healthBody struct {
	Status  view.Status
	Memory  view.Memory
	Refused []view.Refused
	Rate    Rate
	Version string
}

// refusedBack is how many commits back the health page looks for refused records.
const refusedBack = 5000

func (v *visit) health() error {
	status, err := ask[view.StatusAnswer](v, "status", struct{}{})
	if err != nil {
		return err
	}
	memory, err := ask[view.MemoryAnswer](v, "memory.status", struct{}{})
	if err != nil {
		return err
	}
	refused, err := ask[view.RefusedAnswer](
		v, "refused.ls",
		view.ListQuery{
			AfterSequence: max(status.Status.Applied, refusedBack) - refusedBack, Limit: pageRows,
		},
	)
	if err != nil {
		return err
	}
	slices.Reverse(refused.Refused)
	v.live()
	return v.show(
		"health", "Health", "health",
		healthBody{
			status.Status, memory.Memory, refused.Refused, v.s.rates.of(v.page.Tenant), v.s.cfg.Version,
		},
	)
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

// moment is an instant as text, in UTC.
func moment(ns int64) string {
	if ns == 0 {
		return "–"
	}
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05 UTC")
}

// lasted is a length of time as people say it.
func lasted(ns int64) string {
	switch d := time.Duration(ns); {
	case d < 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
