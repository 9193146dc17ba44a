package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// HoldersBucket is the key-value bucket that says which host holds which tenant.
// `nats kv get SAGA_HOLDERS <tenant>` shows the holder.
const HoldersBucket = "SAGA_HOLDERS"

// holdersStream is the stream of the bucket, which is made directly: the
// client's buckets cannot choose where revisions start.
const holdersStream = "KV_" + HoldersBucket

// Bounds of a lease's time to live. The server counts in seconds.
const (
	LeaseTTL    = 10 * time.Second // when HoldersConfig.TTL is 0
	LeaseTTLMin = time.Second
	LeaseTTLMax = time.Hour
)

// ReplicasMax is how many servers can keep a stream.
const ReplicasMax = 5

// ErrLeaseLost means that a lease ran out, was released or went to another
// holder. Whoever held it stops and asks for it again.
var ErrLeaseLost = errors.New("the lease of the tenant is lost")

// HoldersConfig says where the leases are kept.
type HoldersConfig struct {
	Conn *nats.Conn // kept and closed by the caller
	// TTL of a lease that is not renewed: whole seconds, 1 s to 1 h; 0: 10 s.
	TTL      time.Duration
	Replicas int // of a new bucket; 0: 1
	// Process tells this process from others of its holder's name, as after a restart.
	Process string
	// Gone is asked before the lease of another process of the same name is taken: whether that
	// one is gone. nil: it is.
	Gone func(ctx context.Context, tenant string) bool
}

// Holders grants at most one live lease per tenant. A lease decides who tries,
// never who is right: two holders are harmless, because every executor append is
// fenced on a term in the ledger. So the bucket lives in the server's memory,
// costs no fsync, and is made again when a restart has lost it.
type Holders struct {
	js       js.JetStream
	ttl      time.Duration
	replicas int
	process  string
	gone     func(ctx context.Context, tenant string) bool
	revive   revive
}

// Lease is the right of one holder to run one tenant until its TTL has passed
// since the last Acquire or Renew. It is a value: Renew returns the next one.
type Lease struct {
	Tenant   string
	Holder   string
	nonce    string // tells this lease from others of the same holder
	revision uint64
}

// Standing is what is known of a tenant's live lease.
type Standing struct {
	Holder string        // empty: no one
	Left   time.Duration // until it runs out unless it is renewed, by the host's clock
	// Revision of the lease: each renewal has another.
	Revision uint64
	TTL      time.Duration // of the lease, as its holder has asked for
}

// String reads "host-c (for another 10s)", for people.
func (s Standing) String() string {
	return fmt.Sprintf("%s (for another %s)", s.Holder, max(s.Left.Round(time.Second), time.Second))
}

// leaseValue is what the bucket holds under a tenant.
type leaseValue struct {
	Holder string `json:"holder"`
	Nonce  string `json:"nonce"`
	// Process of the holder's name; empty from a version that did not say it.
	Process string `json:"process,omitempty"`
}

// NewHolders asks the server nothing yet: the bucket is found or made with the first lease. The
// error is a *ledger.Refused for a bad configuration.
func NewHolders(cfg HoldersConfig) (*Holders, error) {
	ttl := cfg.TTL
	if ttl == 0 {
		ttl = LeaseTTL
	}
	if ttl < LeaseTTLMin || ttl > LeaseTTLMax || ttl%time.Second != 0 {
		return nil, ledger.Refuse("ttl", ttl.String(), "whole seconds, 1s to 1h")
	}
	if cfg.Conn == nil {
		return nil, ledger.Refuse("conn", "missing", "a connection to NATS")
	}
	client, err := js.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	return &Holders{js: client, ttl: ttl, replicas: max(cfg.Replicas, 1),
		process: cfg.Process, gone: cfg.Gone,
		revive: revive{after: max(reviveLeases*ttl, reviveMin), every: growEvery}}, nil
}

// Open finds the bucket, or makes it. It is also found or made with a lease: who opens it first
// learns what never passes. Errors: *ledger.Refused (the server cannot hold leases); otherwise what
// the server said.
func (h *Holders) Open(ctx context.Context) error {
	if err := checkServer(h.js.Conn()); err != nil {
		return err
	}
	_, err := h.provision(ctx)
	return err
}

// TTL is how long a lease lives without being renewed.
func (h *Holders) TTL() time.Duration { return h.ttl }

// provision finds the bucket or makes it, and tells whether it made it.
func (h *Holders) provision(ctx context.Context) (made bool, err error) {
	if _, err := h.js.KeyValue(ctx, HoldersBucket); err == nil {
		return false, nil
	}
	config := js.StreamConfig{
		Name: holdersStream, Description: "Sagenbaum: which host holds which tenant",
		Subjects: []string{leaseSubject(">")}, MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1,
		MaxMsgsPerSubject: 1,
		Discard:           js.DiscardNew, Storage: js.MemoryStorage, Replicas: h.replicas,
		AllowRollup: true, DenyDelete: true, AllowDirect: true, AllowMsgTTL: true,
		SubjectDeleteMarkerTTL: LeaseTTLMin,
		// A bucket made again must not count revisions that leases of the lost one
		// have, or an old lease could be renewed over another holder's.
		FirstSeq: 1 + rand.Uint64N(1<<50),
	}
	_, err = h.js.CreateStream(ctx, config)
	if hasCode(err, codeNoPeers) && config.Replicas > 1 {
		config.Replicas = 1 // it holds no truth: one server is enough meanwhile
		_, err = h.js.CreateStream(ctx, config)
	}
	if errors.Is(err, js.ErrStreamNameAlreadyInUse) { // another host was faster
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot open bucket %s: %w", HoldersBucket, explain(err))
	}
	return true, nil
}

// Acquire asks for a tenant. ok tells whether the lease is held now; current is
// the live lease, which is another holder's when it is not ok. The same holder id
// gets its lease again at once, and its older lease values are then lost: a host
// that restarts need not wait for itself. It does not where another process of its
// name has the lease and is not gone.
func (h *Holders) Acquire(
	ctx context.Context, tenant, holder string) (lease Lease, ok bool, current Standing, err error,
) {
	lease, ok, current, err = h.acquire(ctx, tenant, holder)
	h.revive.heard(h, err)
	return lease, ok, current, err
}

func (h *Holders) acquire(
	ctx context.Context, tenant, holder string) (lease Lease, ok bool, current Standing, err error,
) {
	if !ledger.ValidToken(tenant) || !ledger.ValidToken(holder) {
		return Lease{}, false, Standing{}, ledger.Refuse("holder",
			fmt.Sprintf("tenant %q, holder %q", tenant, holder),
			"names of "+ledger.TokenWanted)
	}
	// The second round is for a bucket that had to be made again, or a race lost.
	for range 2 {
		var last entry
		last, err = h.last(ctx, tenant)
		if err == nil && h.taken(ctx, tenant, holder, last) {
			return Lease{}, false, h.standing(last), nil
		}
		if err == nil {
			lease, err = h.put(ctx, Lease{Tenant: tenant, Holder: holder, nonce: NewID(),
				revision: last.revision})
		}
		switch {
		case err == nil:
			return lease, true, Standing{holder, h.ttl, lease.revision, h.ttl}, nil
		case bucketGone(err):
			if _, err := h.provision(ctx); err != nil {
				return Lease{}, false, Standing{}, err
			}
		case !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ledger.ErrBusy):
			return Lease{}, false, Standing{}, err
		}
	}
	if errors.Is(err, ErrLeaseLost) {
		last, err := h.last(ctx, tenant)
		return Lease{}, false, h.standing(last), err
	}
	return Lease{}, false, Standing{}, err
}

// taken reports whether the lease is another holder's, or another process's of the same name.
func (h *Holders) taken(ctx context.Context, tenant, holder string, last entry) bool {
	if last.Holder != holder {
		return last.Holder != ""
	}
	return last.Process != h.process && h.gone != nil && !h.gone(ctx, tenant)
}

// standing is what an entry of the bucket means to a host that waits for it.
func (h *Holders) standing(e entry) Standing {
	if e.Holder == "" {
		return Standing{}
	}
	return Standing{e.Holder, time.Until(e.stamp.Add(e.ttl)), e.revision, e.ttl}
}

// Renew lets a lease live for another TTL. The error is ErrLeaseLost when it is
// not held any more; after another error it may be held or not. When the bucket
// was lost with the server's memory, the lease is written again.
func (h *Holders) Renew(ctx context.Context, lease Lease) (Lease, error) {
	next, err := h.renew(ctx, lease)
	h.revive.heard(h, err)
	return next, err
}

func (h *Holders) renew(ctx context.Context, lease Lease) (Lease, error) {
	renewed, err := h.put(ctx, lease)
	if errors.Is(err, ErrLeaseLost) {
		return h.renewAgain(ctx, lease, err)
	}
	if !bucketGone(err) {
		return renewed, err
	}
	made, err := h.provision(ctx)
	if err != nil {
		return Lease{}, err
	}
	if made {
		lease.revision = 0
	}
	return h.put(ctx, lease)
}

// renewAgain is for a lease whose revision has moved. An earlier renewal without a
// reply, as when the bucket's leader died, may have been stored: then the lease is
// its holder's still, under a later revision.
func (h *Holders) renewAgain(ctx context.Context, lease Lease, lost error) (Lease, error) {
	lease, err := h.moved(ctx, lease, lost)
	if err != nil {
		return Lease{}, err
	}
	return h.put(ctx, lease)
}

// moved is a lease under the revision that it has now, or the error lost when it is
// not its holder's any more.
func (h *Holders) moved(ctx context.Context, lease Lease, lost error) (Lease, error) {
	last, err := h.last(ctx, lease.Tenant)
	if err != nil {
		return Lease{}, err
	}
	if last.Holder != lease.Holder || last.Nonce != lease.nonce || last.revision == lease.revision {
		return Lease{}, lost
	}
	lease.revision = last.revision
	return lease, nil
}

// Release gives a lease back, so that another holder need not wait for its TTL.
// A lease that is lost already is no error.
func (h *Holders) Release(ctx context.Context, lease Lease) error {
	remove := func() error {
		msg := nats.NewMsg(leaseSubject(lease.Tenant))
		msg.Header.Set("KV-Operation", "DEL")
		_, err := h.write(ctx, msg, lease.revision, LeaseTTLMin)
		return err
	}
	err := remove()
	if errors.Is(err, ErrLeaseLost) { // by a renewal whose reply was not waited for?
		if lease, err = h.moved(ctx, lease, err); err == nil {
			err = remove()
		}
	}
	if errors.Is(err, ErrLeaseLost) || bucketGone(err) {
		return nil
	}
	return err
}

// Current is the lease of a tenant. Where no server leads the bucket, it is what the server that
// was asked has, which may have run out.
func (h *Holders) Current(ctx context.Context, tenant string) (Standing, error) {
	last, err := h.last(ctx, tenant)
	if bucketGone(err) {
		return Standing{}, nil
	}
	return h.standing(last), err
}

// entry is what the bucket has under a tenant. Holder is empty when the lease has
// ended; the revision is then that of the marker.
type entry struct {
	leaseValue
	revision uint64
	stamp    time.Time
	ttl      time.Duration
}

func (h *Holders) last(ctx context.Context, tenant string) (entry, error) {
	fail := func(err error) (entry, error) {
		return entry{}, fmt.Errorf("cannot read the lease of %s: %w", tenant, explain(err))
	}
	stream, err := h.js.Stream(ctx, holdersStream)
	if err != nil {
		return fail(err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, leaseSubject(tenant))
	if errors.Is(err, js.ErrMsgNotFound) {
		return entry{}, nil
	}
	if err != nil {
		return fail(err)
	}
	e := entry{revision: last.Sequence, stamp: last.Time, ttl: h.ttl}
	if ttl, err := time.ParseDuration(last.Header.Get(js.MsgTTLHeader)); err == nil {
		e.ttl = ttl // hosts may be given different ones
	}
	if last.Header.Get("KV-Operation") != "" || last.Header.Get(js.MarkerReasonHeader) != "" {
		return e, nil
	}
	if err := json.Unmarshal(last.Data, &e.leaseValue); err != nil || e.Holder == "" {
		return fail(fmt.Errorf("%q is no lease", last.Data))
	}
	return e, nil
}

// put writes a lease if its key still has the lease's revision.
func (h *Holders) put(ctx context.Context, lease Lease) (Lease, error) {
	data, err := json.Marshal(leaseValue{lease.Holder, lease.nonce, h.process})
	if err != nil {
		panic("jetstream: a lease that JSON cannot encode: " + err.Error())
	}
	msg := nats.NewMsg(leaseSubject(lease.Tenant))
	msg.Data = data
	lease.revision, err = h.write(ctx, msg, lease.revision, h.ttl)
	if err != nil {
		return Lease{}, err
	}
	return lease, nil
}

// write publishes to the bucket's stream, because the client's Update cannot
// give a key another time to live.
func (h *Holders) write(
	ctx context.Context, msg *nats.Msg, revision uint64, ttl time.Duration) (uint64, error,
) {
	msg.Header.Set(js.MsgTTLHeader, ttl.String())
	msg.Header.Set(js.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	ack, err := h.js.PublishMsg(ctx, msg, js.WithRetryAttempts(0))
	var api *js.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.As(err, &api) && int(api.ErrorCode) == codeFenceMoved:
		return 0, ErrLeaseLost
	case errors.As(err, &api) && int(api.ErrorCode) == codeFenceBusy:
		return 0, ledger.ErrBusy
	}
	return 0, fmt.Errorf("cannot write the lease: %w", err)
}

// bucketGone tells that the bucket is not there, so that no one holds anything.
func bucketGone(err error) bool {
	return errors.Is(err, js.ErrStreamNotFound) || errors.Is(err, js.ErrNoStreamResponse)
}

func leaseSubject(tenant string) string { return "$KV." + HoldersBucket + "." + tenant }
