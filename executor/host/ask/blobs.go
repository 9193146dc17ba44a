package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/blob"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Blobs has the blobs of the tenant: *blob.Store.
type Blobs interface {
	Put(ctx context.Context, agent, plan string, chunk []byte) (digest string, err error)
	End(ctx context.Context, agent, plan, kind string, m seal.Manifest) (seal.Blob, error)
	Manifest(ctx context.Context, plan, digest string) (seal.Manifest, error)
	Read(ctx context.Context, plan, digest string, number int) ([]byte, error)
	Room() blob.Room
}

// Bounds of blobs: requests that are worked on at once, and that wait for it, in number and bytes.
// One that is too many is dropped, and its client asks again.
const (
	blobsAtOnce     = 4
	blobsPending    = 256
	blobsPendingMax = 16 << 20
	blobTimeout     = 20 * time.Second
)

// bytesAnswer is an answer that is bytes and no JSON.
type bytesAnswer struct {
	number int
	chunk  []byte
}

// serveBlobs answers what is asked about blobs. A request waits in its subscription until there is
// a place for it: so many chunks are in memory, and no more.
func (d *Desk) serveBlobs() (*nats.Subscription, error) {
	places := make(chan struct{}, blobsAtOnce)
	prefix := api.BlobSubject(d.Tenant, "", "", "")
	prefix = strings.TrimRight(prefix, ".") + "."
	sub, err := d.Conn.Subscribe(prefix+"*.*.*", func(m *nats.Msg) {
		if !d.takes(m) {
			return
		}
		part := strings.Split(strings.TrimPrefix(m.Subject, prefix), ".")
		if d.Board.silent() || len(part) != 3 || !d.Board.asking.enter() {
			return
		}
		places <- struct{}{}
		go func() { // ends with the answer
			defer func() { <-places; d.Board.asking.leave() }()
			d.respond(m, d.blobVerb(m, part[0], part[1], part[2]))
		}()
	})
	if err == nil {
		err = sub.SetPendingLimits(blobsPending, blobsPendingMax)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to %s>: %w", prefix, err)
	}
	return sub, nil
}

// blobVerb is what answers a request about blobs of someone who has a kind and a name.
func (d *Desk) blobVerb(m *nats.Msg, kind, name, what string) verb {
	stores := kind == api.BlobAgent || kind == api.BlobWorker
	reads := stores || kind == api.BlobOperator
	switch {
	case what == api.VerbBlobPut && stores:
		return verb{name: "blob.put", answer: func(d *Desk, chunk []byte) (any, error) {
			return d.putBlob(kind, name, m.Header.Get(api.BlobHeader), chunk)
		}}
	case what == api.VerbBlobEnd && stores:
		return takes(api.BlobEnd(kind, name), func(d *Desk, q api.BlobEndQuery) (api.BlobEndAnswer,
			error) {
			return d.endBlob(kind, name, q)
		})
	case what == api.VerbBlobGet && reads:
		return takes(api.BlobGet(kind, name),
			func(d *Desk, q api.BlobQuery) (api.BlobAnswer, error) { return d.getBlob(kind, name, q) })
	case what == api.VerbBlobRead && reads:
		return verb{name: "blob.read", answer: func(d *Desk, body []byte) (any, error) {
			return d.readBlob(kind, name, body)
		}}
	}
	return unknown("blob."+what, "request")
}

// blobOwner is the agent of a plan whose blobs someone may store and read.
func (d *Desk) blobOwner(kind, name, plan string) (agent string, err error) {
	if !ledger.ValidToken(plan) {
		return "", ledger.Refuse("request.plan", fmt.Sprintf("%.80q is not a plan id", plan), "a plan id")
	}
	var erased string
	read := func() { d.look(func(r *view.Reader) { agent, erased = r.KeyOwner(plan) }) }
	if read(); agent == "" && d.catchUp() { // its opening was acknowledged just now
		read()
	}
	switch {
	case agent == "":
		return "", &api.Problem{Text: "plan " + plan + " is not in the ledger; its agent opens it " +
			"before anything is stored for it", Field: api.CodeBlobPlan, Want: "a plan that is open"}
	case kind == api.BlobAgent && agent != name:
		return "", ledger.Refuse("request.plan", "plan "+plan+" is agent "+agent+"'s",
			"a plan of agent "+name)
	case erased != "":
		return "", &api.Problem{Text: "plan " + plan + " was " + erased, Field: api.BlobGone,
			Want: "a plan that was not erased"}
	}
	return agent, nil
}

// storedPlan is the plan that keeps what is stored for one: an undo asked for later has a name of
// its own, and its blobs belong to the plan that it undoes.
func storedPlan(plan string) string {
	if of, _, later := strings.Cut(plan, "~"); later && ledger.ValidDerived(plan) {
		return of
	}
	return plan
}

// blobProblem says what is wrong, and whether it may pass.
func blobProblem(err error) error {
	var gone *blob.Gone
	var known *api.Problem
	var refused *ledger.Refused
	told := vault.Told(err)
	switch {
	case err == nil:
		return nil
	case told != err:
		return alone{&api.Problem{Text: told.Error(), Again: vault.MayPass(err)}}
	case errors.As(err, &known):
		return alone{known}
	case errors.As(err, &gone):
		return alone{&api.Problem{Text: gone.Error(), Field: api.BlobGone,
			Again: errors.Is(err, jetstream.ErrNoBlob)}}
	case errors.As(err, &refused):
		return alone{&api.Problem{Text: refused.Problem, Field: refused.Field, Want: refused.Want}}
	case errors.Is(err, blob.ErrFull):
		return alone{&api.Problem{Text: err.Error(), Field: "limits." + api.LimitBlobs,
			Want: "room: erase plans, or serve --blob-bytes"}}
	}
	return alone{&api.Problem{Text: err.Error(), Again: vault.MayPass(err)}}
}

func (d *Desk) putBlob(kind, name, plan string, chunk []byte) (api.BlobChunkAnswer, error) {
	plan = storedPlan(plan)
	agent, err := d.blobOwner(kind, name, plan)
	if err != nil {
		return api.BlobChunkAnswer{}, blobProblem(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	digest, err := d.Blobs.Put(ctx, agent, plan, chunk)
	return api.BlobChunkAnswer{Digest: digest}, blobProblem(err)
}

func (d *Desk) endBlob(kind, name string, q api.BlobEndQuery) (api.BlobEndAnswer, error) {
	q.Plan = storedPlan(q.Plan)
	agent, err := d.blobOwner(kind, name, q.Plan)
	if err != nil {
		return api.BlobEndAnswer{}, blobProblem(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	b, err := d.Blobs.End(ctx, agent, q.Plan, q.Type,
		seal.Manifest{Bytes: q.Bytes, SHA256: q.SHA256, Chunks: q.Chunks})
	return api.BlobEndAnswer{Text: b.Text(), Bytes: b.Bytes, Type: b.Type}, blobProblem(err)
}

func (d *Desk) getBlob(kind, name string, q api.BlobQuery) (answer api.BlobAnswer, err error) {
	if _, err := d.blobOwner(kind, name, q.Plan); err != nil {
		return answer, blobProblem(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	m, err := d.Blobs.Manifest(ctx, q.Plan, q.Digest)
	return api.BlobAnswer{Bytes: m.Bytes, SHA256: m.SHA256, Chunks: len(m.Chunks)}, blobProblem(err)
}

func (d *Desk) readBlob(kind, name string, body []byte) (any, error) {
	var q api.BlobQuery
	if err := d.decode(body, &q); err != nil {
		return nil, err
	}
	if _, err := d.blobOwner(kind, name, q.Plan); err != nil {
		return nil, blobProblem(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	chunk, err := d.Blobs.Read(ctx, q.Plan, q.Digest, q.Chunk)
	if err != nil {
		return nil, blobProblem(err)
	}
	if kind == api.BlobOperator {
		d.Log.Info("a part of a blob was revealed to an operator", "plan", q.Plan, "digest", q.Digest,
			"chunk", q.Chunk, "operator", name)
	}
	return bytesAnswer{q.Chunk, chunk}, nil
}

// message is the answer as it is sent.
func (b bytesAnswer) message() *nats.Msg {
	return &nats.Msg{Header: nats.Header{api.BlobHeader: {strconv.Itoa(b.number)}},
		Data: slices.Concat([]byte{api.BlobMark}, b.chunk)}
}

// errStopping: nothing is asked of the state any more.
var errStopping = errors.New("the host is stopping")

// BlobState is the state of a plan that blobs are stored for.
func (d *Desk) BlobState(plan string) (is blob.State) {
	d.look(func(r *view.Reader) {
		agent, erased := r.KeyOwner(plan)
		state, _, _, _ := r.Outcome(plan)
		is = blob.State{Known: agent != "", Erased: erased != "",
			Ended: state == ledger.StateCommitted || state == ledger.StateCompensated ||
				state == ledger.StateDelivered || state == ledger.StateFailed ||
				state == ledger.StateResolved}
	})
	return is
}

// BlobNames passes the documents of a plan that may refer to blobs, in the clear, one at a time.
func (d *Desk) BlobNames(plan string, each func(json.RawMessage)) error {
	if !d.Board.asking.enter() {
		return errStopping
	}
	defer d.Board.asking.leave()
	var named []json.RawMessage // as they are in memory anyway
	d.look(func(r *view.Reader) {
		r.Payloads(plan, func(document json.RawMessage) {
			if seal.Blobby(document) || seal.Sealed(document) {
				named = append(named, document)
			}
		})
	})
	for _, document := range named {
		if seal.Sealed(document) {
			var err error
			ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
			document, _, err = d.Keys.Open(ctx, document, []string{plan}, nil)
			if cancel(); err != nil {
				return err
			}
		}
		each(document)
	}
	return nil
}
