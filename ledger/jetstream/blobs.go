package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// BlobsStreamName is the stream that has the blobs of a tenant's plans. It is no part of the
// ledger: what is deleted here is gone. No one but hosts should be let read it, or publish on
// "blobs.<tenant>.>".
func BlobsStreamName(tenant string) string { return "BLOBS_" + tenant }

func blobSubject(tenant, plan, digest string) string {
	return "blobs." + tenant + "." + plan + "." + digest
}

// Errors of Blobs.
var (
	// ErrNoBlob: nothing is stored under the digest, or not any more.
	ErrNoBlob = errors.New("it is not in the store")
	// ErrBlobDamaged: what is stored is not what its digest says.
	ErrBlobDamaged = errors.New("the store has other bytes under its digest")
	// ErrNoBlobs: the store itself is not there any more, and all that was in it.
	ErrNoBlobs = errors.New("the store of blobs is not there")
)

// BlobEntryMax is the longest entry, in bytes.
const BlobEntryMax = 260 << 10

// blobMessageMax bounds an entry with its headers, in bytes.
const blobMessageMax = BlobEntryMax + 1<<10

// Blobs keeps bytes by their digest for each plan of a tenant, which its caller has encrypted:
// chunks, and the manifests that name them. It promises that what was stored is there after a
// crash, as records are, until it is removed; it does not look at what it keeps, and holds one
// entry in memory at a time. It is safe for concurrent use.
type Blobs struct {
	stream js.Stream
	client js.JetStream
	tenant string
}

// FindBlobs is OpenBlobs for a store that must be there; nil: there is none.
func FindBlobs(ctx context.Context, cfg Config) (*Blobs, error) {
	client, err := js.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	ctx, done := context.WithTimeout(ctx, lookupWait)
	defer done()
	// Asked for by its subject, a stream that is not there is an answer and no request that the
	// server counts as an error: most tenants have none.
	name, err := client.StreamNameBySubject(ctx, blobSubject(cfg.Tenant, "*", "*"))
	var stream js.Stream
	if err == nil {
		stream, err = client.Stream(ctx, name)
	}
	if errors.Is(err, js.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for the blobs of tenant %s: %w", cfg.Tenant, explain(err))
	}
	if stream, err = mendBlobs(ctx, client, stream, cfg); err != nil {
		return nil, fmt.Errorf("cannot set up the blobs of tenant %s: %w", cfg.Tenant, explain(err))
	}
	return &Blobs{stream, client, cfg.Tenant}, nil
}

// mendBlobs gives a store that is there what one that is made now has. A host that may not do it
// goes on, unless it would keep what it stores on fewer servers than it was told to.
func mendBlobs(ctx context.Context, client js.JetStream, stream js.Stream,
	cfg Config) (js.Stream, error) {
	config := stream.CachedInfo().Config
	few := config.Replicas < cfg.Replicas
	if !config.AllowDirect && !few {
		return stream, nil
	}
	config.AllowDirect, config.Replicas = false, max(config.Replicas, cfg.Replicas)
	mended, err := client.UpdateStream(ctx, config)
	if err != nil && !few {
		return stream, nil
	}
	return mended, err
}

// OpenBlobs finds the store of a tenant, or makes it with as many replicas as a ledger. The server
// does not bound it: a bound would be reserved at the expense of the ledgers. Its caller does.
func OpenBlobs(ctx context.Context, cfg Config) (*Blobs, error) {
	found, err := FindBlobs(ctx, cfg)
	if found == nil && err == nil {
		found, err = makeBlobs(ctx, cfg)
	}
	return found, err
}

func makeBlobs(ctx context.Context, cfg Config) (*Blobs, error) {
	client, err := js.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	stream, err := client.CreateStream(ctx, js.StreamConfig{
		Name:        BlobsStreamName(cfg.Tenant),
		Description: "Sagenbaum blobs of tenant " + cfg.Tenant + ": not a part of its ledger",
		Subjects:    []string{blobSubject(cfg.Tenant, "*", "*")},
		MaxMsgs:     -1, MaxBytes: -1, MaxConsumers: -1, Discard: js.DiscardNew,
		// What is stored again takes the place of what was, and is as young as it can be.
		MaxMsgsPerSubject: 1, MaxMsgSize: blobMessageMax, Storage: js.FileStorage,
		Replicas: max(cfg.Replicas, 1), DenyPurge: true,
		AllowDirect: false, // that an entry is missing counts for ever, and only the leader knows
	})
	if errors.Is(err, js.ErrStreamNameAlreadyInUse) { // another host was faster
		stream, err = client.Stream(ctx, BlobsStreamName(cfg.Tenant))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the blobs of tenant %s: %w", cfg.Tenant, explain(err))
	}
	return &Blobs{stream, client, cfg.Tenant}, nil
}

// Put stores bytes under their digest, which it returns. The same bytes again are as young as if
// they were new, so that whoever looks for what is old leaves them.
func (b *Blobs) Put(ctx context.Context, plan string, stored []byte) (digest string, err error) {
	if !ledger.ValidToken(plan) {
		return "", ledger.Refuse("plan", fmt.Sprintf("%.80q is not a plan id", plan), "a plan id")
	}
	digest = digestOf(stored)
	m := &nats.Msg{Subject: blobSubject(b.tenant, plan, digest), Data: stored}
	if _, err = b.client.PublishMsg(ctx, m); err != nil {
		return "", fmt.Errorf("cannot store a blob of plan %s: %w", plan, blobsLost(err))
	}
	return digest, nil
}

// blobsLost is explain, and ErrNoBlobs where the stream is not there. That no one takes a message
// may also pass: whoever is told so looks for the stream.
func blobsLost(err error) error {
	if errors.Is(err, js.ErrStreamNotFound) || errors.Is(err, js.ErrNoStreamResponse) {
		return fmt.Errorf("%w: %v", ErrNoBlobs, err)
	}
	return explain(err)
}

func digestOf(stored []byte) string {
	sum := sha256.Sum256(stored)
	return hex.EncodeToString(sum[:])
}

// Get returns what is stored under a digest; the leader of the stream answers. Errors: ErrNoBlob,
// ErrBlobDamaged, ErrNoBlobs; after another one no one knows.
func (b *Blobs) Get(ctx context.Context, plan, digest string) ([]byte, error) {
	if !ledger.ValidToken(plan) || !ledger.ValidToken(digest) {
		return nil, ErrNoBlob
	}
	answer, err := askLeader(ctx, b.client.Conn(), BlobsStreamName(b.tenant),
		fmt.Sprintf(`{"last_by_subj":%q}`, blobSubject(b.tenant, plan, digest)))
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	switch {
	case errors.Is(err, js.ErrMsgNotFound):
		return nil, ErrNoBlob
	case err == nil && answer.Message == nil:
		return nil, fmt.Errorf("cannot read a blob of plan %s: the answer has no message", plan)
	case err != nil:
		return nil, fmt.Errorf("cannot read a blob of plan %s: %w", plan, blobsLost(err))
	case digestOf(answer.Message.Data) != digest:
		return nil, ErrBlobDamaged
	}
	return answer.Message.Data, nil
}

// Has says whether something is stored under a digest. The server does not read it for that.
func (b *Blobs) Has(ctx context.Context, plan, digest string) (bool, error) {
	if !ledger.ValidToken(plan) || !ledger.ValidToken(digest) {
		return false, nil
	}
	info, err := b.stream.Info(ctx, js.WithSubjectFilter(blobSubject(b.tenant, plan, digest)))
	if err != nil {
		return false, fmt.Errorf("cannot look for a blob of plan %s: %w", plan, blobsLost(err))
	}
	return len(info.State.Subjects) > 0, nil
}

// BlobEntry is one entry of the store, without its bytes.
type BlobEntry struct {
	Plan, Digest string
	Sequence     uint64
	Stored       time.Time
}

// All are the entries of the store from a sequence on, in the order in which they were stored; of
// one plan, or of all where plan is empty. The server reads them for that.
func (b *Blobs) All(ctx context.Context, plan string, from uint64) iter.Seq2[BlobEntry, error] {
	return func(yield func(BlobEntry, error) bool) {
		if err := b.walk(ctx, plan, from, yield); err != nil {
			yield(BlobEntry{}, fmt.Errorf("cannot list the blobs of tenant %s: %w", b.tenant,
				blobsLost(err)))
		}
	}
}

// blobsListed is how many entries are asked for at once, and blobsIdle how long a consumer of
// them may be left alone.
const (
	blobsListed = 512
	blobsIdle   = 30 * time.Second
)

func (b *Blobs) walk(ctx context.Context, plan string, from uint64,
	yield func(BlobEntry, error) bool) error {
	if plan == "" {
		plan = "*"
	}
	consumer, err := b.stream.CreateConsumer(ctx, js.ConsumerConfig{
		AckPolicy: js.AckNonePolicy, HeadersOnly: true,
		DeliverPolicy: js.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1),
		FilterSubject: blobSubject(b.tenant, plan, "*"), MemoryStorage: true, Replicas: 1,
		InactiveThreshold: blobsIdle,
	})
	if err != nil {
		return err
	}
	defer func() {
		ending, done := context.WithTimeout(context.WithoutCancel(ctx), lookupWait)
		defer done()
		_ = b.stream.DeleteConsumer(ending, consumer.CachedInfo().Name) // it ends by itself, too
	}()
	for left := consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.FetchNoWait(int(min(left, blobsListed)))
		if err != nil {
			return err
		}
		came := uint64(0)
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			came++
			token := strings.Split(m.Subject(), ".")
			if len(token) == 4 && !yield(BlobEntry{token[2], token[3], meta.Sequence.Stream,
				meta.Timestamp}, nil) {
				return nil
			}
			left = meta.NumPending
		}
		if err := errors.Join(batch.Error(), ctx.Err()); err != nil {
			return err
		}
		if came == 0 { // what was there was removed meanwhile
			return nil
		}
	}
	return nil
}

// Remove removes an entry, unless it was stored again since it was listed. Again is harmless.
func (b *Blobs) Remove(ctx context.Context, entry BlobEntry) error {
	err := b.stream.DeleteMsg(ctx, entry.Sequence)
	if hasCode(err, js.JSErrCodeMessageNotFound) {
		return nil
	}
	if err != nil && !errors.Is(err, js.ErrMsgNotFound) &&
		!errors.Is(err, js.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("cannot remove a blob of plan %s: %w", entry.Plan, explain(err))
	}
	return nil
}

// Room says how many entries there are, and how many bytes they take.
func (b *Blobs) Room(ctx context.Context) (entries, used uint64, err error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot ask for the blobs of tenant %s: %w", b.tenant, blobsLost(err))
	}
	return info.State.Msgs, info.State.Bytes, nil
}
