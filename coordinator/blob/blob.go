// Package blob stores values that are too large for a record, and reads them: inputs, outputs and
// before-images of up to 64 MiB.
//
// A value is stored for a plan, sealed under the plan's key, and erased with the plan. [Client.Put]
// returns a [Ref], which is JSON and takes the place of the value in an input, an output or a
// before-image. Bindings copy it as they copy any value, so that the worker that undoes the action
// is given the Ref, and reads the value by [Client.Copy].
//
// Both are streams: a client has one chunk of 256 KiB in memory, whatever the value's size.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Max is the size of the largest value, in bytes.
const Max = seal.BlobMax

// Ref refers to a stored value. Its JSON is
//
//	{"sagenbaum/blob/v1":"PLAN/DIGEST","bytes":1048576,"type":"text/plain"}
//
// Digest is that of what is stored, sealed: it tells nothing of the value once its plan is erased.
type Ref struct {
	Plan   string
	Digest string
	Bytes  int64
	Type   string // media type; empty: not said
}

// MarshalJSON writes the reference.
func (r Ref) MarshalJSON() ([]byte, error) { return seal.Blob(r).MarshalJSON() }

// UnmarshalJSON reads a reference, and nothing else.
func (r *Ref) UnmarshalJSON(raw []byte) error { return (*seal.Blob)(r).UnmarshalJSON(raw) }

// ErrGone means that a value cannot be read, now or ever: its plan was erased, it was removed
// because no record referred to it, or it is damaged. Package worker answers an undo whose handler
// returns it with stop: the action goes to its owner, and is never taken for undone.
var ErrGone = errors.New("the blob is missing")

// ErrNoPlan means that the ledger does not have the plan that a value is to be stored for. An
// Answerer of package worker returns it as it is: the agent then stores the opening of its plan,
// and asks again.
var ErrNoPlan = errors.New("the plan is not in the ledger")

// Roles of a Client.
const (
	Agent    = api.BlobAgent    // stores and reads what belongs to its own plans
	Worker   = api.BlobWorker   // stores and reads what belongs to any plan of its tenant
	Operator = api.BlobOperator // reads, where it may see what is sealed
)

// Config says who a Client is. All fields are required.
type Config struct {
	Conn   *nats.Conn // kept and closed by the caller
	Tenant string
	Role   string // Agent, Worker or Operator
	Name   string // of the user
}

// Client stores and reads values. It is safe for concurrent use.
type Client struct{ Config }

// Bounds of a Client: one request, and how long it goes on asking without an answer.
const (
	requestMax = 10 * time.Second
	awayMax    = 30 * time.Second
	goneMax    = 10 * time.Second // for a worker, which says that its undo cannot be done
	delayMin   = 20 * time.Millisecond
	delayMax   = time.Second
)

// New checks the configuration. The error is a *ledger.Refused.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Conn == nil:
		return nil, ledger.Refuse("config.conn", "missing", "a connection to NATS")
	case !ledger.ValidToken(cfg.Tenant):
		return nil, ledger.Refuse("config.tenant", fmt.Sprintf("%.80q is not a name", cfg.Tenant),
			ledger.TokenWanted)
	case !ledger.ValidToken(cfg.Name):
		return nil, ledger.Refuse("config.name", fmt.Sprintf("%.80q is not a name", cfg.Name),
			ledger.TokenWanted)
	case cfg.Role != Agent && cfg.Role != Worker && cfg.Role != Operator:
		return nil, ledger.Refuse("config.role", fmt.Sprintf("%.80q is none", cfg.Role),
			"blob.Agent, blob.Worker or blob.Operator")
	}
	return &Client{cfg}, nil
}

// Value is what is stored.
type Value struct {
	Plan   string // required: what it belongs to; the ledger must have it
	From   io.Reader
	Type   string // media type; empty: not said
	SHA256 string // of the value, in hex, where it is known: another one is refused
}

// Put stores a value, and returns once it is durable. After an error
// nothing refers to what was stored of it, and it is removed once its plan has ended.
// Errors: *ledger.Refused, ErrNoPlan, ErrGone where the plan was erased, that of the reader, ctx's.
func (c *Client) Put(ctx context.Context, v Value) (Ref, error) {
	if v.From == nil {
		return Ref{}, ledger.Refuse("blob.from", "missing", "a reader")
	}
	end := api.BlobEndQuery{Plan: v.Plan, Type: v.Type, Chunks: []string{}}
	sum, chunk := sha256.New(), make([]byte, seal.BlobChunk)
	for more := true; more; {
		n, err := io.ReadFull(v.From, chunk)
		if more = err == nil; err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return Ref{}, fmt.Errorf("cannot read the value: %w", err)
		}
		if n == 0 {
			break
		}
		if end.Bytes += int64(n); end.Bytes > Max {
			return Ref{}, ledger.Refuse("blob.bytes", fmt.Sprintf("more than %d bytes", int64(Max)),
				fmt.Sprintf("at most %d bytes", int64(Max)))
		}
		sum.Write(chunk[:n])
		digest, err := c.put(ctx, v.Plan, chunk[:n])
		if err != nil {
			return Ref{}, err
		}
		end.Chunks = append(end.Chunks, digest)
	}
	end.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if v.SHA256 != "" && v.SHA256 != end.SHA256 {
		return Ref{}, ledger.Refuse("blob.sha256", fmt.Sprintf("%.80q is not that of the %d bytes",
			v.SHA256, end.Bytes), "the SHA-256 of the value, in lower-case hex")
	}
	verb := api.BlobEnd(c.Role, c.Name)
	answer, err := call(ctx, c, verb.Call, &nats.Msg{Data: encoded(end)}, verb.Decode)
	if err != nil {
		return Ref{}, err
	}
	var ref Ref
	if err := json.Unmarshal(encoded(answer), &ref); err != nil {
		return Ref{}, fmt.Errorf("cannot read the answer of the executor: %w", err)
	}
	return ref, nil
}

func (c *Client) put(ctx context.Context, plan string, chunk []byte) (string, error) {
	verb := api.BlobPut(c.Role, c.Name)
	answer, err := call(ctx, c, verb.Call,
		&nats.Msg{Header: nats.Header{api.BlobHeader: {plan}}, Data: chunk}, verb.Decode)
	return answer.Digest, err
}

// About is what is known of a stored value.
type About struct {
	Bytes  int64
	SHA256 string // of the value, in hex
	chunks int
}

// About says what is stored; only the plan and the digest of ref count. Errors as of Copy.
func (c *Client) About(ctx context.Context, ref Ref) (About, error) {
	verb := api.BlobGet(c.Role, c.Name)
	found, err := call(ctx, c, verb.Call,
		&nats.Msg{Data: encoded(api.BlobQuery{Plan: ref.Plan, Digest: ref.Digest})}, verb.Decode)
	return About{found.Bytes, found.SHA256, found.Chunks}, err
}

// Copy writes a value. After an error what it has written is a part of the value, and no more than
// that: each chunk is right. Errors: ErrGone, *ledger.Refused, that of the writer, ctx's.
func (c *Client) Copy(ctx context.Context, to io.Writer, ref Ref) error {
	about, err := c.About(ctx, ref)
	if err != nil {
		return err
	}
	if about.Bytes != ref.Bytes {
		return fmt.Errorf("%w: %s has %d bytes, and its reference says %d", ErrGone, ref.text(),
			about.Bytes, ref.Bytes)
	}
	sum, query := sha256.New(), api.BlobQuery{Plan: ref.Plan, Digest: ref.Digest}
	for query.Chunk = range about.chunks {
		if err := c.copyChunk(ctx, to, sum, query); err != nil {
			return err
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != about.SHA256 {
		return fmt.Errorf("%w: %s is damaged", ErrGone, ref.text())
	}
	return nil
}

func (r Ref) text() string { return seal.Blob(r).Text() }

func (c *Client) copyChunk(ctx context.Context, to io.Writer, sum hash.Hash,
	query api.BlobQuery) error {
	verb := api.BlobRead(c.Role, c.Name)
	number := strconv.Itoa(query.Chunk)
	chunk, err := callRaw(ctx, c, verb.Call, &nats.Msg{Data: encoded(query)},
		func(m *nats.Msg) ([]byte, error) {
			if m.Header.Get(api.BlobHeader) == number && len(m.Data) > 0 && m.Data[0] == api.BlobMark {
				return m.Data[1:], nil
			}
			_, err := verb.Decode(m.Data)
			if err == nil {
				err = errors.New("the answer of the executor is no chunk")
			}
			return nil, err
		})
	if err != nil {
		return err
	}
	sum.Write(chunk)
	if _, err := to.Write(chunk); err != nil {
		return fmt.Errorf("cannot write the value: %w", err)
	}
	return nil
}

// call asks the executor, again while it may pass.
func call[A any](ctx context.Context, c *Client, verb api.Call, m *nats.Msg,
	decode func([]byte) (A, error)) (A, error) {
	return callRaw(ctx, c, verb, m, func(m *nats.Msg) (A, error) { return decode(m.Data) })
}

func callRaw[A any](ctx context.Context, c *Client, verb api.Call, m *nats.Msg,
	read func(*nats.Msg) (A, error)) (answer A, err error) {
	asking := time.Now()
	for delay := delayMin; ; delay = min(2*delay, delayMax) {
		once, done := context.WithTimeout(ctx, requestMax)
		sent := nats.NewMsg(verb.Subject(c.Tenant))
		sent.Header, sent.Data = m.Header, m.Data
		reply, asked := c.Conn.RequestMsgWithContext(once, sent)
		done()
		if err = asked; err == nil {
			answer, err = read(reply)
		}
		var problem *api.Problem
		switch {
		case err == nil:
			return answer, nil
		case errors.As(err, &problem) && problem.Field == api.BlobGone &&
			(!problem.Again || c.Role != Worker || time.Since(asking) >= goneMax):
			return answer, fmt.Errorf("%w: %s", ErrGone, problem.Text)
		case errors.As(err, &problem) && problem.Field == api.CodeBlobPlan:
			return answer, fmt.Errorf("%w: %s", ErrNoPlan, problem.Text)
		case errors.As(err, &problem) && problem.Field != "" && problem.Field != api.BlobGone:
			return answer, ledger.Refuse(problem.Field, problem.Text, problem.Want)
		case ctx.Err() != nil, asked == nil && (problem == nil || !problem.Again),
			time.Since(asking) > awayMax, c.Conn.IsClosed():
			return answer, fmt.Errorf("cannot ask %s: %w", verb.Name, err)
		}
		pause.For(ctx, delay)
	}
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("blob: a question that is no JSON: " + err.Error())
	}
	return data
}
