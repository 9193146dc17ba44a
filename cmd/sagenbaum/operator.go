package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// defaultActor is the name operators act under when they give none: that of the
// user who runs the command; empty when there is none that can stand in a subject.
func defaultActor() string {
	name := os.Getenv("USER")
	if name == "" {
		if current, err := user.Current(); err == nil {
			name = current.Username
		}
	}
	if !ledger.ValidToken(name) {
		return ""
	}
	return name
}

func checkActor(actor string) error {
	if ledger.ValidToken(actor) {
		return nil
	}
	return fail(exitUsage, "--actor NAME of 1 to 64 letters, digits, '-' or '_'", "%q cannot act: an operator's record needs a name", actor)
}

// operate appends one operator record and waits until the executor has folded
// it. Refused or void there means that the log decided otherwise: conflict.
func (c *client) operate(ctx context.Context, actor string, record *pb.Record) (api.OutcomeAnswer, uint64, error) {
	source := ledger.Source{Tenant: c.tenant, Class: ledger.ClassOperator, Name: actor}
	if err := ledger.Check(record, source); err != nil {
		return api.OutcomeAnswer{}, 0, err
	}
	data, err := ledger.EncodeCommit([]*pb.Record{record})
	if err != nil {
		return api.OutcomeAnswer{}, 0, err
	}
	sequence, err := c.append(ctx, ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data})
	if err != nil {
		return api.OutcomeAnswer{}, 0, err
	}
	answer, err := c.outcome(ctx, api.OutcomeQuery{Plan: record.Plan, Sequence: sequence, WaitMs: c.timeout.Milliseconds() / 2})
	if err != nil {
		return answer, sequence, err
	}
	if len(answer.Refused) > 0 {
		return answer, sequence, fail(exitConflict, "sagenbaum plan show "+record.Plan, "record %d has no effect: %s", sequence, strings.Join(answer.Refused, "; "))
	}
	return answer, sequence, nil
}

// append stores one commit. In doubt, it tries again with the same id: a second
// copy changes nothing.
func (c *client) append(ctx context.Context, a ledger.Append) (uint64, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	appender, err := jetstream.Attach(c.conn, c.tenant)
	if err != nil {
		return 0, err
	}
	sequence, err := appender.Append(ctx, a)
	if errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil {
		sequence, err = appender.Append(ctx, a)
	}
	for errors.Is(err, ledger.ErrBusy) && !lasting(err) && pause(ctx, busyPause) {
		sequence, err = appender.Append(ctx, a)
	}
	denied := c.denied.Load()
	switch {
	case err == nil:
		return sequence, nil
	case denied != nil:
		hint := "credentials of an operator, with --creds FILE"
		if source, ok := ledger.ParseSubject(a.Subject); ok && source.Class == ledger.ClassFact {
			hint = "--source NAME of one that your credentials may write as, or others with --creds FILE"
		}
		return 0, fail(exitNotAllowed, hint, "not allowed: %s", *denied)
	case errors.Is(err, ledger.ErrInDoubt):
		return 0, fail(exitFailed, "look before you try again: sagenbaum ledger tail", "it is not known whether the record was stored: %v", err)
	case errors.Is(err, jetstream.ErrNoStream):
		return 0, fail(exitNoServer, "sagenbaum serve --tenant "+c.tenant, "tenant %s has no ledger at %s", c.tenant, c.server)
	case errors.Is(err, ledger.ErrFull):
		return 0, fail(exitFailed, "make room (sagenbaum doctor), then try again", "the record was not stored: %v", err)
	default:
		return 0, fmt.Errorf("cannot append the record: %w", err)
	}
}

// busyPause is how long a command waits before it tries a busy ledger again.
const busyPause = 100 * time.Millisecond

// lasting reports whether a busy ledger stays so until somebody does something.
func lasting(err error) bool {
	return errors.Is(err, jetstream.ErrNoStream) || errors.Is(err, ledger.ErrFull)
}
