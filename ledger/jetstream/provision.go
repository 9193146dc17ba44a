package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// MessageSizeMax is the largest message of a stream in bytes, headers included.
const MessageSizeMax = ledger.CommitSizeMax + ledger.HeaderSizeMax

// dedupeWindow is how long the server remembers commit IDs: an optimisation.
const dedupeWindow = 2 * time.Minute

// lookupWait bounds the question for a stream, so that whoever opens it asks again:
// while a cluster elects a leader no one answers, also not afterwards.
const lookupWait = 5 * time.Second

// wanted is the configuration of a new stream.
func wanted(cfg Config) js.StreamConfig {
	maxBytes := cfg.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	return js.StreamConfig{
		Name:              StreamName(cfg.Tenant),
		Description:       "Sagenbaum ledger of tenant " + cfg.Tenant,
		Subjects:          everybody(cfg.Tenant),
		Retention:         js.LimitsPolicy,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          maxBytes,
		Discard:           js.DiscardNew,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        MessageSizeMax,
		Storage:           js.FileStorage,
		Replicas:          max(cfg.Replicas, 1),
		Duplicates:        dedupeWindow,
		DenyDelete:        true,
		DenyPurge:         true,
		AllowDirect:       true,
		Compression:       compression(cfg.Replicas),
	}
}

// compression is that of full blocks of a stream. There is none where there are replicas: a server
// of a cluster that syncs each append cuts its stream back to its last snapshot when it starts. To
// do so it begins a block, for which nats-server (2.15.2) compresses the one before it, in the
// background, and then appends to that one again: a compressed block with records after it, which
// cannot be read when it is loaded.
func compression(replicas int) js.StoreCompression {
	if replicas > 1 {
		return js.NoCompression
	}
	return js.S2Compression
}

// provision returns the tenant's stream, made if it is not there.
func provision(ctx context.Context, client js.JetStream, cfg Config) (js.Stream, error) {
	want := wanted(cfg)
	lookup, done := context.WithTimeout(ctx, lookupWait)
	stream, err := client.Stream(lookup, want.Name)
	done()
	if errors.Is(err, js.ErrStreamNotFound) {
		stream, err = client.CreateStream(ctx, want)
		if errors.Is(err, js.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = client.Stream(ctx, want.Name)
		}
	}
	if err == nil {
		stream, err = mendCompression(ctx, client, stream)
	}
	if err != nil {
		return nil, explain(err)
	}
	return stream, contradiction(stream.CachedInfo().Config, want, cfg)
}

// mendCompression ends the compression of a stream that has replicas; the blocks that are there
// stay as they are. Who may not change a stream opens it as it is: a host may.
func mendCompression(ctx context.Context, client js.JetStream, stream js.Stream) (js.Stream,
	error) {
	config := stream.CachedInfo().Config
	if config.Replicas <= 1 || config.Compression == js.NoCompression {
		return stream, nil
	}
	config.Compression = js.NoCompression
	mended, err := client.UpdateStream(ctx, config)
	if refused := new(js.APIError); err == nil || errors.As(err, &refused) {
		return mended, err
	}
	return stream, nil
}

// ErrNoLeader is that JetStream stores nothing now, and tells little.
var ErrNoLeader = errors.New("no server leads JetStream: more than half of its servers must be " +
	"there to elect one")

// explain turns what a client sees of a server without JetStream into words.
func explain(err error) error {
	var refused *js.APIError
	switch {
	case errors.Is(err, js.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return ledger.Refuse("server", "JetStream is off",
			`a server started with JetStream ("jetstream {}" in its configuration, or -js)`)
	case errors.Is(err, js.ErrJetStreamNotEnabledForAccount):
		return ledger.Refuse("account", "JetStream is off for this account",
			`"jetstream: enabled" in the account's configuration`)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("no answer from JetStream; too few of its servers may be there, the user may "+
			"lack permission on $JS.API, or the server lost its disk: %w", err)
	case errors.As(err, &refused) && NoLeader(int(refused.ErrorCode)):
		return ErrNoLeader
	}
	return err
}

// contradiction names the first setting of a stream with which it cannot be a
// ledger. The dangerous ones are never updated behind the owner's back.
func contradiction(have, want js.StreamConfig, cfg Config) error {
	name := want.Name
	for _, rule := range []struct {
		field string
		ok    bool
		have  any
		want  string
	}{
		{"subjects", slices.Equal(have.Subjects, want.Subjects) || isClosed(have, cfg.Tenant),
			have.Subjects, want.Subjects[0] + " and nothing else"},
		{"storage", have.Storage == want.Storage, have.Storage, "file"},
		{"retention", have.Retention == want.Retention, have.Retention, "limits"},
		{"discard", have.Discard == want.Discard && !have.DiscardNewPerSubject, have.Discard,
			"new"},
		{"deny_delete", have.DenyDelete, have.DenyDelete, "true"},
		{"deny_purge", have.DenyPurge, have.DenyPurge, "true"},
		{"max_age", have.MaxAge == 0, have.MaxAge, "none"},
		{"max_msgs", have.MaxMsgs <= 0, have.MaxMsgs, "none"},
		{"max_msgs_per_subject", have.MaxMsgsPerSubject <= 0, have.MaxMsgsPerSubject, "none"},
		{"max_msg_size", have.MaxMsgSize == want.MaxMsgSize, have.MaxMsgSize,
			fmt.Sprint(want.MaxMsgSize)},
		{"max_bytes", cfg.MaxBytes == 0 || have.MaxBytes == cfg.MaxBytes ||
			have.Metadata[LimitMark] != "", have.MaxBytes,
			fmt.Sprintf("%d; change it with: nats stream edit %s --max-bytes=%d", cfg.MaxBytes,
				name, cfg.MaxBytes)},
		{"num_replicas", have.Replicas >= want.Replicas, have.Replicas,
			fmt.Sprintf("at least %d; change it with: nats stream edit %s --replicas=%d",
				want.Replicas, name, want.Replicas)},
		{"no_ack", !have.NoAck, have.NoAck, "false"},
		{"sealed", !have.Sealed, have.Sealed, "false"},
		{"persist_mode", have.PersistMode == js.DefaultPersistMode, have.PersistMode, "default"},
		{"allow_direct", have.AllowDirect, have.AllowDirect, "true"},
		{"allow_rollup_hdrs", !have.AllowRollup, have.AllowRollup, "false"},
		{"allow_atomic", !have.AllowAtomicPublish, have.AllowAtomicPublish, "false"},
		{"allow_batched", !have.AllowBatchPublish, have.AllowBatchPublish, "false"},
		{"allow_msg_ttl", !have.AllowMsgTTL, have.AllowMsgTTL, "false"},
		{"allow_msg_counter", !have.AllowMsgCounter, have.AllowMsgCounter, "false"},
		{"allow_msg_schedules", !have.AllowMsgSchedules, have.AllowMsgSchedules, "false"},
		{"mirror", have.Mirror == nil, "set", "none"},
		{"sources", len(have.Sources) == 0, "set", "none"},
		{"subject_transform", have.SubjectTransform == nil, "set", "none"},
	} {
		if !rule.ok {
			return ledger.Refuse("stream."+rule.field, fmt.Sprintf("%s has %v", name, rule.have),
				rule.want)
		}
	}
	return nil
}
