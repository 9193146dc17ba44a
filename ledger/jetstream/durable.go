package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// durableWait bounds the question to the system account.
const durableWait = 2 * time.Second

// lossyWant says what to do about a server that is not known to sync.
const lossyWant = `"sync_interval: always" in the jetstream block of every server and a system account connection that can see it, or --accept-lossy-broker`

// checkDurable refuses a server that is not known to sync every write. With the
// default of two minutes a power cut loses acknowledged records (measured: the
// first one lost the whole stream). A client cannot see the setting: neither
// INFO nor $JS.API.INFO nor the account's own monitoring subjects carry it, only
// the system account's JSZ does.
func checkDurable(ctx context.Context, cfg Config) error {
	if cfg.AcceptLossyBroker {
		return nil
	}
	id := cfg.Conn.ConnectedServerId()
	if cfg.DurableServer != "" && cfg.DurableServer == id {
		return nil
	}
	if cfg.System == nil {
		return ledger.Refuse("sync_interval", fmt.Sprintf("server %s cannot be seen to sync every write; a power cut may lose acknowledged records", cfg.Conn.ConnectedServerName()), lossyWant)
	}
	return askServers(ctx, cfg.System, id)
}

// serverAnswer is the part of a JSZ answer that is read here.
type serverAnswer struct {
	Server struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"server"`
	Data struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncAlways bool `json:"sync_always"`
		} `json:"config"`
		Meta *struct {
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
	} `json:"data"`
}

// askServers asks every server of the system whether it syncs every write. It is
// content when all of the cluster's JetStream servers have said yes, the
// connected one among those that answered. A server that is down says nothing: when
// the time is up, a majority that said yes and nobody who said no is enough, or no
// host could start while a cluster mends.
func askServers(ctx context.Context, system *nats.Conn, connected string) error {
	ctx, cancel := context.WithTimeout(ctx, durableWait)
	defer cancel()
	inbox := system.NewInbox()
	answers, err := system.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("cannot ask the system account: %w", err)
	}
	defer answers.Unsubscribe() //nolint:errcheck // fails only on a closed connection
	if err := system.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, nil); err != nil {
		return fmt.Errorf("cannot ask the system account: %w", err)
	}
	durable, expected, found := map[string]bool{}, 1, false
	for {
		msg, err := answers.NextMsgWithContext(ctx)
		if err != nil && found && 2*len(durable) > expected {
			return nil
		}
		if err != nil {
			return ledger.Refuse("sync_interval", fmt.Sprintf("%d of %d JetStream servers said that they sync every write, then: %v", len(durable), expected, err), lossyWant)
		}
		var answer serverAnswer
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return fmt.Errorf("cannot read the answer of a server: %v", err)
		}
		found = found || answer.Server.ID == connected
		if !answer.Data.Disabled {
			if !answer.Data.Config.SyncAlways {
				return ledger.Refuse("sync_interval", fmt.Sprintf("server %s does not sync every write", answer.Server.Name), lossyWant)
			}
			durable[answer.Server.ID] = true
			if answer.Data.Meta != nil {
				expected = max(expected, answer.Data.Meta.Size)
			}
		}
		if found && len(durable) >= expected {
			return nil
		}
	}
}
