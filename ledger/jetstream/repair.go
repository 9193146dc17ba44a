package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Inspected is what a stream looks like to a repair.
type Inspected struct {
	Head  ledger.Head
	Ready bool // takes the ledger's subjects: it is no half built one
	There bool
}

// Inspect looks at a tenant's stream and changes nothing. A stream that is not
// there is no error.
func Inspect(ctx context.Context, conn *nats.Conn, tenant string) (Inspected, error) {
	client, err := js.New(conn)
	if err != nil {
		return Inspected{}, fmt.Errorf("cannot use the connection: %v", err)
	}
	stream, err := client.Stream(ctx, StreamName(tenant))
	if errors.Is(err, js.ErrStreamNotFound) {
		return Inspected{}, nil
	}
	if err != nil {
		return Inspected{}, fmt.Errorf("cannot look at stream %s: %w", StreamName(tenant),
			explain(err))
	}
	return inspected(stream.CachedInfo(), tenant), nil
}

func inspected(info *js.StreamInfo, tenant string) Inspected {
	return Inspected{
		There: true, Ready: slices.Equal(info.Config.Subjects, []string{"saga." + tenant + ".>"}),
		Head: headOf(info),
	}
}

func headOf(info *js.StreamInfo) ledger.Head {
	state := info.State
	head := ledger.Head{First: state.FirstSeq, Last: state.LastSeq,
		Deleted: uint64(state.NumDeleted), CreatedNs: info.Created.UnixNano(),
		Replicas: info.Config.Replicas}
	if state.Msgs == 0 {
		head.First = head.Last + 1
	}
	return head
}

// Replacement makes a tenant's stream again. Until Finish the new stream takes
// nothing but what Put gives it: the ledger's own subjects lead nowhere, so that
// appends are answered with ErrNoStream and tried again.
type Replacement struct {
	client js.JetStream
	cfg    Config
	conn   *nats.Conn
}

// Replace returns what replaces a tenant's stream; it changes nothing yet.
func Replace(cfg Config) (*Replacement, error) {
	client, err := js.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %v", err)
	}
	return &Replacement{client: client, cfg: cfg, conn: cfg.Conn}, nil
}

// hidden is where Put publishes; the stream keeps the subjects that follow it.
const hidden = "repair."

func (r *Replacement) config(first uint64) js.StreamConfig {
	config := wanted(r.cfg)
	config.FirstSeq = first
	config.Subjects = []string{hidden + config.Subjects[0]}
	config.SubjectTransform = &js.SubjectTransformConfig{Source: config.Subjects[0],
		Destination: "saga." + r.cfg.Tenant + ".>"}
	return config
}

// Delete deletes the stream that was made at created, and no other.
func (r *Replacement) Delete(ctx context.Context, createdNs int64) error {
	now, err := Inspect(ctx, r.conn, r.cfg.Tenant)
	if err != nil || !now.There {
		return err
	}
	if now.Head.CreatedNs != createdNs {
		return ledger.Refuse("stream", fmt.Sprintf("%s is another one than the repair is about",
			StreamName(r.cfg.Tenant)), "a repair that begins again")
	}
	if err := r.client.DeleteStream(ctx, StreamName(r.cfg.Tenant)); err != nil &&
		!errors.Is(err, js.ErrStreamNotFound) {
		return fmt.Errorf("cannot delete stream %s: %w", StreamName(r.cfg.Tenant), err)
	}
	return nil
}

// Create makes the new stream, whose first message will have sequence first. It
// finds the one that an earlier call has made. A stream of the name that is none
// of Create's is *ledger.Refused.
func (r *Replacement) Create(ctx context.Context, first uint64) (Inspected, error) {
	name := StreamName(r.cfg.Tenant)
	stream, err := r.client.CreateStream(ctx, r.config(first))
	if errors.Is(err, js.ErrStreamNameAlreadyInUse) {
		stream, err = r.client.Stream(ctx, name)
	}
	if err != nil {
		return Inspected{}, fmt.Errorf("cannot make stream %s: %w", name, explain(err))
	}
	now := inspected(stream.CachedInfo(), r.cfg.Tenant)
	if now.Head.First != first {
		return now, ledger.Refuse("stream", fmt.Sprintf("%s starts at %d", name, now.Head.First),
			fmt.Sprintf("one that starts at %d; begin the repair again", first))
	}
	return now, nil
}

// Put appends a message as the sequence that follows last, or is *ledger.Refused
// when the stream has gone on. Its stamp is the server's.
func (r *Replacement) Put(ctx context.Context, m ledger.Message, last uint64) error {
	msg := &nats.Msg{Subject: hidden + m.Subject, Data: m.Data, Header: nats.Header{}}
	if m.ContentType != "" {
		msg.Header.Set(contentType, m.ContentType)
	}
	ack, err := r.client.PublishMsg(ctx, msg, js.WithRetryAttempts(0),
		js.WithExpectLastSequence(last))
	if err != nil {
		return fmt.Errorf("cannot append to the new stream: %w", err)
	}
	if ack.Sequence != last+1 {
		return ledger.Refuse("stream", fmt.Sprintf("the record is at %d", ack.Sequence),
			fmt.Sprintf("sequence %d", last+1))
	}
	return nil
}

// Finish opens the new stream to the ledger's subjects.
func (r *Replacement) Finish(ctx context.Context, first uint64) error {
	config := wanted(r.cfg)
	config.FirstSeq = first
	if _, err := r.client.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("cannot open the new stream: %w", err)
	}
	return nil
}

// Salvage yields what can still be read of a stream from a sequence on, up to its
// end, in order. It skips what cannot be read. It is for a stream that is damaged:
// Store.Read stops at the first damage.
func Salvage(
	ctx context.Context, conn *nats.Conn, tenant string, from, to uint64,
	yield func(ledger.Message) error,
) error {
	client, err := js.New(conn)
	if err != nil {
		return fmt.Errorf("cannot use the connection: %v", err)
	}
	stream, err := client.Stream(ctx, StreamName(tenant))
	if err != nil {
		return fmt.Errorf("cannot look at stream %s: %w", StreamName(tenant), explain(err))
	}
	store := &Store{Appender: &Appender{conn: conn, js: client, tenant: tenant}, stream: stream}
	for sequence := from; sequence <= to; sequence++ {
		m, err := store.Get(ctx, sequence)
		var halted *ledger.Halted
		var refused *ledger.Refused
		switch {
		case err == nil:
			if err := yield(m); err != nil {
				return err
			}
		case errors.As(err, &halted), errors.As(err, &refused):
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			var api *js.APIError
			if !errors.As(err, &api) {
				return err
			}
		}
	}
	return nil
}
