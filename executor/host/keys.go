package host

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// openTenantKeys opens the folder of tenants' keys and checks that the master key opens all
// of them: a host with another one would have undos wait that nothing is wrong with.
func openTenantKeys(cfg Config) (*vault.Folder, error) {
	if len(cfg.MasterKey) == 0 {
		return nil, nil
	}
	folder, err := vault.OpenFolder(cfg.TenantKeysDir)
	if err != nil {
		return nil, err
	}
	folder.MasterFile = cfg.MasterKeyFile
	return folder, folder.Check(cfg.MasterKey)
}

// newKeyring makes the keyring of a tenant.
func (h *Host) newKeyring(tenant string) *vault.Keyring {
	stream := jetstream.Config{Conn: h.cfg.Conn, Tenant: tenant, Replicas: h.cfg.Replicas}
	cfg := vault.Config{
		Tenant: tenant, Master: h.cfg.MasterKey, Folder: h.tenantKeys,
		Log: h.log.With("tenant", tenant),
		Store: func(ctx context.Context) (vault.KeyStore, error) {
			if h.cfg.Keys != nil {
				return h.cfg.Keys(ctx, tenant)
			}
			return jetstream.OpenKeys(ctx, stream)
		},
		Fetch: func(ctx context.Context, ask func(string) vault.Asked) iter.Seq[vault.Given] {
			return h.fetchKey(ctx, tenant, ask)
		},
		Announce: func(ask func(string) vault.Asked) {
			reply := h.cfg.Conn.NewInbox() // as of every request; no one waits there
			body, err := json.Marshal(ask(reply))
			if err == nil { // who does not hear it asks when it starts, or needs the key
				_ = h.cfg.Conn.PublishRequest(api.KeySubject(tenant, api.KeyHosts), reply, body)
			}
		},
	}
	if h.cfg.Keys == nil {
		cfg.HasStore = func(ctx context.Context) (bool, error) { return jetstream.HasKeys(ctx, stream) }
	}
	return vault.New(cfg)
}

// fetchKey asks all hosts of a tenant for its key, and takes their answers until no further
// one is wanted, or for fetchWait.
func (h *Host) fetchKey(ctx context.Context, tenant string,
	ask func(reply string) vault.Asked) iter.Seq[vault.Given] {
	return func(yield func(vault.Given) bool) {
		ctx, cancel := context.WithTimeout(ctx, fetchWait)
		defer cancel()
		conn := h.cfg.Conn
		reply := conn.NewInbox()
		body, err := json.Marshal(ask(reply))
		if err != nil {
			panic("host: cannot encode a question: " + err.Error())
		}
		sub, err := conn.SubscribeSync(reply)
		if err != nil {
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
		subject := api.KeySubject(tenant, api.KeyHosts)
		for err = conn.PublishRequest(subject, reply, body); err == nil; {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return
			}
			var given vault.Given
			if json.Unmarshal(m.Data, &given) == nil && len(given.Wrapped) > 0 && !yield(given) {
				return
			}
		}
	}
}
