package jetstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Room is how much of a disk a ledger takes, and may take.
type Room struct {
	Used uint64 // bytes that it takes
	Most uint64 // bytes that it may take; 0: no bound
	// Limit is that of the tenant which Most was made of; 0: Most is not of a limit.
	Limit uint64
	// Closed: the ledger takes nothing of agents and sources. What holders, workers,
	// supervisors and operators say is stored all the same.
	Closed bool
}

// LimitMark is where the configuration of a stream says of which limit its bound was made.
const LimitMark = "sagenbaum.limit"

// everybody are the subjects of a ledger, and ending those of the writers that end what is owed.
func everybody(tenant string) []string { return []string{"saga." + tenant + ".>"} }

func ending(tenant string) (subjects []string) {
	for _, class := range []ledger.Class{ledger.ClassVerdict, ledger.ClassOperator,
		ledger.ClassWorker} {
		subjects = append(subjects, ledger.Source{Tenant: tenant, Class: class, Name: "*"}.Subject())
	}
	holder := ledger.Source{Tenant: tenant, Class: ledger.ClassExecutor}
	subjects = append(subjects, holder.Subject())
	holder.Term = true
	return append(subjects, holder.Subject())
}

// isClosed reports whether a ledger takes nothing of agents and sources.
func isClosed(c js.StreamConfig, tenant string) bool {
	return slices.Equal(c.Subjects, ending(tenant))
}

// Room says how much the ledger takes now. The error is the server's.
func (s *Store) Room(ctx context.Context) (Room, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return Room{}, fmt.Errorf("cannot look at stream %s: %w", StreamName(s.tenant), explain(err))
	}
	return roomOf(info, s.tenant), nil
}

// Bound is the limit of the tenant of which the stream's bound was made when it was opened; 0: it
// is of none.
func (s *Store) Bound() uint64 { return roomOf(s.stream.CachedInfo(), s.tenant).Limit }

func roomOf(info *js.StreamInfo, tenant string) Room {
	r := Room{Used: info.State.Bytes, Closed: isClosed(info.Config, tenant)}
	if info.Config.MaxBytes > 0 {
		r.Most = uint64(info.Config.MaxBytes)
	}
	r.Limit, _ = strconv.ParseUint(info.Config.Metadata[LimitMark], 10, 64) // 0: it is no number
	return r
}

// Fit gives the ledger another room; Used of it is ignored. It needs the right to update the
// stream. The error is the server's.
func (s *Store) Fit(ctx context.Context, r Room) error {
	info, err := s.stream.Info(ctx)
	if err == nil {
		c := info.Config
		c.MaxBytes, c.Subjects = -1, everybody(s.tenant)
		if r.Most > 0 {
			c.MaxBytes = int64(r.Most)
		}
		if r.Closed {
			c.Subjects = ending(s.tenant)
		}
		c.Metadata = maps.Clone(c.Metadata)
		delete(c.Metadata, LimitMark)
		if r.Limit > 0 {
			if c.Metadata == nil {
				c.Metadata = map[string]string{}
			}
			c.Metadata[LimitMark] = strconv.FormatUint(r.Limit, 10)
		}
		_, err = s.js.UpdateStream(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("cannot change the room of stream %s: %w", StreamName(s.tenant), explain(err))
	}
	return nil
}
