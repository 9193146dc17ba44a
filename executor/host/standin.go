package host

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// StandInConfig is what NewStandIn needs; Conn, Tenants and Problem are required.
type StandInConfig struct {
	Conn    *nats.Conn // kept and closed by the caller
	Tenants []string
	Holder  string // name of the host, as Config.Holder; empty: "this host"
	Problem string // why no host runs
	// Elsewhere: another host may hold the tenants, and answers for them. The stand-in
	// answers the one question that every host answers.
	Elsewhere bool
	Disks     []observe.Disk   // shown with the status
	Metrics   *observe.Metrics // nil: none
}

// StandIn answers for tenants while no Host can run, because a disk cannot be written: a
// question for their status has the reason for an answer, instead of none, and they are listed. It
// reads and writes nothing.
type StandIn struct {
	cfg  StandInConfig
	subs []*nats.Subscription
}

// NewStandIn answers from now on, until Close. The error is the connection's.
func NewStandIn(cfg StandInConfig) (*StandIn, error) {
	if cfg.Holder == "" {
		cfg.Holder = "this host"
	}
	s := &StandIn{cfg: cfg}
	var err error
	serve := func(subject, tenant, prefix string) {
		sub, refused := cfg.Conn.Subscribe(subject, func(m *nats.Msg) {
			s.answer(m, tenant, strings.TrimPrefix(m.Subject, prefix))
		})
		s.subs, err = append(s.subs, sub), errors.Join(err, refused)
	}
	for _, tenant := range cfg.Tenants {
		query, admin := api.QuerySubject(tenant, ""), api.AdminSubject(tenant, "")
		serve(query+">", tenant, query)
		serve(admin+">", tenant, admin)
		serve(api.HostsSubject(tenant), tenant, "")
		cfg.Metrics.Tenant(tenant).Mode("", api.ModeDegraded)
	}
	if !cfg.Elsewhere {
		serve(api.ServerSubject(api.TenantLs), "", "")
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the answers.
func (s *StandIn) Close() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // a connection that is closed has ended it
	}
	for _, tenant := range s.cfg.Tenants {
		s.cfg.Metrics.Tenant(tenant).Mode(api.ModeDegraded, "")
	}
}

func (s *StandIn) answer(m *nats.Msg, tenant, verb string) {
	var answer any
	var problem *api.Problem
	switch {
	case api.CheckReplyTo(m.Reply) != nil: // as every host: it would be published there
		return
	case verb == ask.VerbReleased:
		return
	case verb == api.ServerSubject(api.TenantLs):
		answer = api.TenantsAnswer{Tenants: slices.Sorted(slices.Values(s.cfg.Tenants))}
	case verb == api.TenantHost.Name, verb == api.HostsSubject(tenant):
		answer = api.HostAnswer{Host: api.Host{Host: s.cfg.Holder, Mode: api.ModeDegraded,
			Problem: s.cfg.Problem}}
	case s.cfg.Elsewhere:
		return
	case verb == api.TenantStatus.Name:
		answer = api.StatusAnswer{Status: api.Status{
			Tenant: tenant, Mode: api.ModeDegraded, Problem: s.cfg.Problem,
			Disks: observe.Disks(s.cfg.Disks),
		}}
	default:
		problem = &api.Problem{Text: "tenant " + tenant + " is degraded: " + s.cfg.Problem, Again: true}
	}
	body, err := api.EncodeAnswer(answer, problem)
	if err != nil {
		panic("host: cannot encode an answer: " + err.Error())
	}
	_ = m.Respond(body) // no one may wait for it any more
}

// degraded shows that the tiles cannot be written, until they can: questions are answered
// from the state as it is, unless another host holds the tenant, which has its lock by now.
func (a *actor) degraded(ctx context.Context, err error) {
	if was := a.board.Mode(); was != api.ModeDegraded {
		a.log.Error("tenant degraded: nothing is folded or dispatched until the disk can be written",
			"error", err)
	}
	a.board.Enter(api.ModeDegraded, err.Error())
	a.opened.Do(a.host.attaching.Done)
	a.board.Elsewhere(a.lead.elsewhere(ctx))
}
