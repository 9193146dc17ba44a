package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// twinWait is how long another process of this host's name has to answer. A restart waits for
// it where the lock of the process before has not run out.
const twinWait = 150 * time.Millisecond

// twinGone reports whether this host may take a tenant's lock that another process of its name
// has.
func (h *Host) twinGone(ctx context.Context, tenant string) bool {
	a := h.roster.of(tenant)
	return a == nil || a.lead.twinGone(ctx)
}

// twinGone reports whether this process may take the lock that another one of its name has: as
// after a restart, and only then. One that has had the lock before has lost it to that other one,
// and waits as for any other host, or two of one name would take it from each other in turn.
func (l *leadership) twinGone(ctx context.Context) bool {
	other, there := l.findTwin(ctx)
	if !there {
		return !l.had.Load()
	}
	if told := l.twin.Swap(&other.Process); told == nil || *told != other.Process {
		l.log.Error("another process has the name of this host: this one stands by", "holder", l.me,
			"other", other.At, "next", "give each host a name of its own: serve --holder NAME")
	}
	return false
}

// findTwin asks the hosts of the tenant whether another process has this one's name.
func (l *leadership) findTwin(ctx context.Context) (other api.Host, there bool) {
	ctx, cancel := context.WithTimeout(ctx, twinWait)
	defer cancel()
	inbox := l.conn.NewInbox()
	answers, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return api.Host{}, false
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only on a closed connection
	if l.conn.PublishRequest(api.HostsSubject(l.tenant), inbox, []byte("{}")) != nil {
		return api.Host{}, false
	}
	for {
		reply, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return api.Host{}, false
		}
		var answer api.HostAnswer
		if json.Unmarshal(reply.Data, &answer) == nil && answer.Host.Host == l.me &&
			answer.Host.Process != l.process {
			return answer.Host, true
		}
	}
}
