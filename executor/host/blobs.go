package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/blob"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// newBlobs makes the store of a tenant's blobs.
func (h *Host) newBlobs(a *actor) *blob.Store {
	stream := jetstream.Config{Conn: h.cfg.Conn, Tenant: a.tenant, Replicas: h.cfg.Replicas}
	return blob.New(blob.Config{
		Tenant: a.tenant, Keys: a.keys, Log: a.log,
		Open: func(ctx context.Context) (blob.Entries, error) {
			found, err := jetstream.OpenBlobs(ctx, stream)
			if err != nil {
				return nil, err
			}
			return found, nil
		},
		Find: func(ctx context.Context) (blob.Entries, error) {
			found, err := jetstream.FindBlobs(ctx, stream)
			if found == nil || err != nil {
				return nil, err
			}
			return found, nil
		},
		State: func(plan string) blob.State { return a.desk.BlobState(plan) },
		Named: func(plan string, each func(json.RawMessage)) error {
			return a.desk.BlobNames(plan, each)
		},
		Grace: cmp.Or(h.cfg.BlobGrace, blobGraceDefault),
		Every: cmp.Or(h.cfg.BlobEvery, blobEveryDefault),
		Again: cmp.Or(h.cfg.BlobAgain, blobAgainDefault),
		Most:  uint64(cmp.Or(h.cfg.BlobBytes, BlobBytesDefault)),
	})
}

// holdsNow reports, from any goroutine, whether this host holds the tenant, and sends its undos:
// what is old by the clock is removed, so not in a guard, where the clock may be the reason.
func (a *actor) holdsNow() bool { return a.board.Mode() == api.ModeHolding }

// openCommand gives what a command takes in the clear, and the single values that were sealed. The
// error says that it cannot be had: the blobs that it refers to must be there.
func (a *actor) openCommand(c executor.Command) (json.RawMessage, []json.RawMessage, error) {
	plan, _, _ := strings.Cut(c.Plan, "~")
	if err := a.desk.ForgetErased(plan); err != nil {
		return nil, nil, err
	}
	arguments, opened, err := a.keys.OpenCommand(c)
	if err != nil || !seal.Blobby(arguments) {
		return arguments, opened, err
	}
	return arguments, opened, a.blobs.Check(context.Background(), plan, arguments)
}

// codeOf is the code of a command that cannot be sent, now or ever; empty: it may pass.
func codeOf(err error, sealed bool) string {
	switch {
	case errors.As(err, new(*blob.Gone)):
		return api.CodeBlob
	case sealed:
		return codeSealed
	}
	return ""
}
