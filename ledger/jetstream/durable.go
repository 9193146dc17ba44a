package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Bounds of the question to the system account. It is asked again, for it does not reach a server
// whose routes are not up yet, and an answer may be lost.
const (
	durableWait  = 2 * time.Second  // after which those count that have answered, if they are enough
	durableMax   = 10 * time.Second // after which they are too few
	durableAgain = 500 * time.Millisecond
)

// lossyWant says what to do about a server that is not known to sync.
const lossyWant = `"sync_interval: always" in the jetstream block of every server and a system account ` +
	`connection that can see it, or --accept-lossy-broker`

// durable reports whether the server is the one that is known to sync every write: the
// embedded one, whose settings are ours.
func (cfg Config) durable() bool {
	return cfg.DurableServer != "" && cfg.DurableServer == cfg.Conn.ConnectedServerId()
}

// checkServers refuses a server that is not known to sync every write, and one of a
// cluster that is too old or not strict. With the default of two minutes a power cut
// loses acknowledged records, up to the whole stream. A client cannot see the setting:
// neither INFO nor $JS.API.INFO nor the account's own monitoring subjects carry it, only
// the system account's JSZ does.
func checkServers(ctx context.Context, cfg Config) error {
	switch {
	case cfg.durable():
		return nil
	case cfg.System != nil:
		return askServers(ctx, cfg.System, cfg.Conn.ConnectedServerId(), cfg.AcceptLossyBroker)
	case cfg.AcceptLossyBroker:
		return nil
	}
	return ledger.Refuse("sync_interval", fmt.Sprintf(
		"server %s cannot be seen to sync every write; a power cut may lose acknowledged records",
		cfg.Conn.ConnectedServerName()), lossyWant)
}

// serverAnswer is the part of a JSZ answer that is read here.
type serverAnswer struct {
	Server struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version string `json:"ver"`
	} `json:"server"`
	Data struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncAlways bool `json:"sync_always"`
			Strict     bool `json:"strict"`
		} `json:"config"`
		Meta *struct {
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
	} `json:"data"`
}

// check refuses a JetStream server by what it says of itself.
func (a serverAnswer) check(lossy bool) error {
	if err := checkVersion(a.Server.Name, a.Server.Version); err != nil {
		return err
	}
	switch {
	case !a.Data.Config.Strict:
		problem := "server %s takes JetStream requests with unknown fields"
		return ledger.Refuse("strict", fmt.Sprintf(problem, a.Server.Name), strictWant)
	case !a.Data.Config.SyncAlways && !lossy:
		problem := "server %s does not sync every write"
		return ledger.Refuse("sync_interval", fmt.Sprintf(problem, a.Server.Name), lossyWant)
	}
	return nil
}

// askServers asks every server of the system what it is and whether it syncs every write.
// It is content when all of the cluster's JetStream servers have said what they should, the
// connected one among those that answered. A server that is down says nothing: after durableWait,
// a majority that did and no one who did not is enough, or no host could start while a
// cluster mends. Where losses are accepted, those who say nothing are, too.
func askServers(ctx context.Context, system *nats.Conn, connected string, lossy bool) error {
	ctx, cancel := context.WithTimeout(ctx, durableMax)
	defer cancel()
	inbox := system.NewInbox()
	answers, err := system.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("cannot ask the system account: %w", err)
	}
	defer answers.Unsubscribe() //nolint:errcheck // fails only on a closed connection
	fine, expected, found := map[string]bool{}, 1, false
	var asked time.Time
	for start := time.Now(); ; {
		if time.Since(asked) >= durableAgain {
			asked = time.Now()
			if err := system.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil); err != nil {
				return fmt.Errorf("cannot ask the system account: %w", err)
			}
		}
		msg, err := nextUntil(ctx, answers, asked.Add(durableAgain))
		silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		switch {
		case silent && time.Since(start) < durableWait:
			continue
		case err != nil && (lossy || found && 2*len(fine) > expected):
			return nil
		case silent && len(fine) > 0: // where no one answers, this is no system account
			continue
		case err != nil && found: // it is one, and some servers are away
			return fmt.Errorf("%d of %d JetStream servers answer: %w", len(fine), expected, ErrNoLeader)
		case err != nil:
			return ledger.Refuse("sync_interval", fmt.Sprintf(
				"%d of %d JetStream servers said that they sync every write, then: %v",
				len(fine), expected, err), lossyWant)
		}
		var answer serverAnswer
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return fmt.Errorf("cannot read the answer of a server: %v", err)
		}
		found = found || answer.Server.ID == connected
		if !answer.Data.Disabled {
			if err := answer.check(lossy); err != nil {
				return err
			}
			fine[answer.Server.ID] = true
			if answer.Data.Meta != nil {
				expected = max(expected, answer.Data.Meta.Size)
			}
		}
		if found && len(fine) >= expected {
			return nil
		}
	}
}

// nextUntil is the next message that comes until an instant.
func nextUntil(ctx context.Context, sub *nats.Subscription, until time.Time) (*nats.Msg, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}
