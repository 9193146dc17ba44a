package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of the question that every host of a tenant answers.
const (
	hostsPause = 150 * time.Millisecond // without a further answer: these are all
	hostsMax   = 100
)

// hosts asks every host that may hold the tenant, by name. Those that do not
// answer at once are missing: a host that is gone, or stands still.
func (c *client) hosts(ctx context.Context) (views []executor.HostView, err error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	inbox := c.conn.NewInbox()
	answers, err := c.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, c.explain("the hosts", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only on a closed connection
	if err := c.conn.PublishRequest(api.QuerySubject(c.tenant, "host"), inbox, []byte("{}")); err != nil {
		return nil, c.explain("the hosts", err)
	}
	for len(views) < hostsMax {
		pause, stop := context.WithTimeout(ctx, hostsPause)
		reply, err := answers.NextMsgWithContext(pause)
		stop()
		var answer executor.HostAnswer
		if err != nil {
			break
		}
		if json.Unmarshal(reply.Data, &answer) == nil && answer.Host.Host != "" {
			views = append(views, answer.Host)
		}
	}
	slices.SortFunc(views, func(a, b executor.HostView) int { return cmp.Compare(a.Host, b.Host) })
	return views, nil
}

// withoutHolder explains a question that nobody answered: a host that stands by
// leaves it to the holder, and there may be none now.
func (c *client) withoutHolder(ctx context.Context, err error) error {
	var f *failure
	if !errors.As(err, &f) || f.code != exitNoServer {
		return err
	}
	hosts, hostsErr := c.hosts(ctx)
	if hostsErr != nil || len(hosts) == 0 {
		return err
	}
	var texts []string
	for _, h := range hosts {
		texts = append(texts, standbyText(h))
	}
	return fail(exitNoServer, "ask again in a few seconds: a host that stands by takes over when the lease of the last one has run out",
		"the holder of tenant %s does not answer; %s", c.tenant, strings.Join(texts, "; "))
}

// holderText is who holds a tenant, and since when.
func holderText(v executor.StatusView, now time.Time) string {
	text := fmt.Sprintf("%s, term %d", dash(v.Holder), v.Term)
	if v.SinceNs != 0 {
		text += fmt.Sprintf(" since %s (%s)", moment(v.SinceNs), relative(v.SinceNs, now))
	}
	return text
}

// standbyText is a host that does not hold the tenant.
func standbyText(h executor.HostView) string {
	text := fmt.Sprintf("%s: %s, %d of %d folded", h.Host, h.Mode, h.Applied, h.Last)
	if h.Problem != "" {
		text += ", " + h.Problem
	}
	return text
}

// standbys are the hosts that do not hold the tenant.
func standbys(hosts []executor.HostView) []executor.HostView {
	return slices.DeleteFunc(slices.Clone(hosts), func(h executor.HostView) bool {
		return h.Mode == executor.ModeHolding || h.Mode == executor.ModeGuard
	})
}

// examineHosts says who would take over.
func examineHosts(ctx context.Context, c *client, v executor.StatusView) finding {
	hosts, err := c.hosts(ctx)
	if err != nil {
		return problem("hosts", err)
	}
	var others, halted, degraded []string
	holding := 0
	for _, h := range hosts {
		switch h.Mode {
		case executor.ModeHolding, executor.ModeGuard:
			holding++
		case executor.ModeHalted:
			halted = append(halted, standbyText(h))
		case executor.ModeDegraded:
			degraded = append(degraded, standbyText(h))
		default:
			others = append(others, standbyText(h))
		}
	}
	f := ok("hosts", "no other host stands by for %s", v.Tenant)
	switch {
	case holding > 1:
		f = warn("hosts", "run doctor again: the older one notices within its lease; what it appends meanwhile does not count", "%d hosts say that they hold tenant %s", holding, v.Tenant)
	case len(halted) > 0 && holding > 0:
		f = broken("hosts", "its copy of the ledger is not the holder's: "+keepLedger, "%s", countOf(len(halted), "host")+" halted")
		others = append(halted, others...)
	case len(degraded) > 0 && holding > 0:
		f = warn("hosts", "make room on its disk, or make it writable", "%s degraded, and would not take over", countOf(len(degraded), "host"))
	case len(others) > 0:
		f = ok("hosts", "%s would take over", countOf(len(others), "host"))
	}
	f.Details = append(others, degraded...)
	return f
}
