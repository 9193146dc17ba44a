package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of the question that every host of a tenant answers.
const (
	hostsFirst = time.Second            // until the first answer
	hostsPause = 150 * time.Millisecond // without a further answer: these are all
	hostsMax   = 100
)

// Hosts asks every host that may hold the tenant, by name. Those that do not
// answer at once are missing: a host that is gone, or hangs.
func (c *Client) Hosts(ctx context.Context) (views []api.Host, err error) {
	ctx, cancel := c.Within(ctx)
	defer cancel()
	inbox := c.Conn.NewInbox()
	answers, err := c.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, c.Explain("the hosts", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only on a closed connection
	if err := c.Conn.PublishRequest(api.HostsSubject(c.Tenant), inbox,
		[]byte("{}")); err != nil {
		return nil, c.Explain("the hosts", err)
	}
	for wait := hostsFirst; len(views) < hostsMax; wait = hostsPause {
		pause, stop := context.WithTimeout(ctx, wait)
		reply, err := answers.NextMsgWithContext(pause)
		stop()
		var answer api.HostAnswer
		if err != nil { // also where no host listens, at once
			break
		}
		if json.Unmarshal(reply.Data, &answer) == nil && answer.Host.Host != "" {
			views = append(views, answer.Host)
		}
	}
	slices.SortFunc(views, func(a, b api.Host) int { return cmp.Compare(a.Host, b.Host) })
	return views, nil
}

// WithoutHolder explains a question that no host answered: a host that stands by
// leaves it to the holder, and there may be none now.
func (c *Client) WithoutHolder(ctx context.Context, err error) error {
	if !noAnswer(err) {
		return err
	}
	hosts, hostsErr := c.Hosts(ctx)
	if hostsErr != nil || len(hosts) == 0 {
		return err
	}
	return Fail(ExitNoServer,
		"ask again in a few seconds: a host that stands by takes over when the lease of the last "+
			"one has run out",
		"the holder of tenant %s does not answer; %s", c.Tenant, strings.Join(StandbyTexts(hosts), "; "))
}

// StandbyTexts are hosts that do not hold the tenant, a text each.
func StandbyTexts(hosts []api.Host) (texts []string) {
	for _, h := range hosts {
		texts = append(texts, StandbyText(h))
	}
	return texts
}

// StandbyText is a host that does not hold the tenant.
func StandbyText(h api.Host) string {
	text := fmt.Sprintf("%s: %s, %d of %d folded", h.Host, h.Mode, h.Applied, h.Last)
	if h.Problem != "" {
		text += ", " + h.Problem
	}
	return text
}

// Twins are the hosts that share their name with another one, each with where it runs.
func Twins(hosts []api.Host) (twins []string) {
	for _, h := range hosts {
		if slices.ContainsFunc(hosts, func(other api.Host) bool {
			return other.Host == h.Host && other.Process != h.Process
		}) {
			twins = append(twins, fmt.Sprintf("%s (%s)", h.Host, Dash(h.At)))
		}
	}
	return twins
}

// OwnNames is what to do about hosts of one name.
const OwnNames = "give each host a name of its own, serve --holder NAME: the others of one name " +
	"stand by"

// Standbys are the hosts that do not hold the tenant.
func Standbys(hosts []api.Host) []api.Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h api.Host) bool {
		return h.Mode == api.ModeHolding || h.Mode == api.ModeGuard
	})
}

// UndoQuarantined is the state of an undo that waits for the plan's owner.
const UndoQuarantined = "quarantined"
