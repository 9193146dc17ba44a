package host

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// asserting is a commit of one fact with so many bytes.
func asserting(t *testing.T, bytes int) []byte {
	t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
		FactAsserted: &pb.FactAsserted{Key: "k", Value: make([]byte, bytes)}}}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// takes is how long appends of a tenant take, one after the other: the 99th of a hundred.
func (r *rig) takes(tenant, what string) (p99 time.Duration) {
	r.t.Helper()
	agent, err := jetstream.Attach(r.conn, tenant)
	if err != nil {
		r.t.Fatal(err)
	}
	data := asserting(r.t, 1)
	var took []time.Duration
	for range 1500 {
		began := time.Now()
		if _, err := agent.Append(r.t.Context(), ledger.Append{Subject: "saga." + tenant + ".fact.src",
			ID: jetstream.NewID(), Data: data}); err != nil {
			r.t.Fatal(err)
		}
		took = append(took, time.Since(began))
		<-time.After(time.Millisecond)
	}
	slices.Sort(took)
	p99 = took[len(took)*99/100]
	r.t.Logf("%-48s p50 %v, p99 %v", what, took[len(took)/2], p99)
	return p99
}

// flood has four programs append to tenant t, until stop is called.
func (r *rig) flood(pause time.Duration) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	data := asserting(r.t, 2<<10)
	var all sync.WaitGroup
	for range 4 {
		conn, err := r.srv.Connect()
		if err != nil {
			r.t.Fatal(err)
		}
		source, err := jetstream.Attach(conn, "t")
		if err != nil {
			r.t.Fatal(err)
		}
		all.Go(func() {
			defer conn.Close()
			for ctx.Err() == nil {
				_, _ = source.Append(ctx, ledger.Append{Subject: "saga.t.fact.src", ID: jetstream.NewID(), Data: data})
				if pause > 0 {
					<-time.After(pause)
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// TestOneFullTenantLeavesOthersAlone measures how long an append of one tenant takes while another
// one fills its ledger, and goes on when it is full: with SAGENBAUM_LONG on a quiet machine.
func TestOneFullTenantLeavesOthersAlone(t *testing.T) {
	if os.Getenv("SAGENBAUM_LONG") == "" {
		t.Skip("SKIPPED: a measurement; set SAGENBAUM_LONG=1 on a quiet machine")
	}
	r := newRig(t)
	r.follow = true
	r.tenants = []string{"t", "other"}
	r.serve(done)
	h, _ := r.host("h1")
	r.holds("other")
	r.plan("p", 50, time.Hour)
	r.takes("other", "warm")
	r.eventually("the limit is stored", func() bool {
		return tenancyOf(t, h, api.TenantLimit, api.TenantRequest{Tenant: "t",
			Limits: api.TenantLimits{Bytes: 16 << 20, Records: 100}}).Error == ""
	})
	alone := r.takes("other", "alone")
	stop := r.flood(0)
	r.takes("other", "while the other fills its ledger")
	r.eventually("the other is full for its agents", func() bool {
		used, most, _ := h.roster.of("t").bound.room()
		return used > most/10*9-8<<10 // its holder may have nothing to say, and find it full later
	})
	r.takes("other", "the other is full, and tries without a pause")
	stop()
	const tries = 5
	for try := 1; ; try++ { // the machine may be at something else
		stop = r.flood(10 * time.Millisecond)
		full := r.takes("other", "the other is full, and tries 400 times a second")
		stop()
		if full <= 3*alone {
			break
		}
		if try == tries {
			t.Errorf("p99 %v beside a full tenant, %v alone", full, alone)
			break
		}
		alone = r.takes("other", "alone, again")
	}
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{Plan: "p",
		Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "x", Actor: "ana"}}})
	if end := r.ended("p"); end.State != ledger.StateCompensated {
		t.Errorf("the full tenant's plan: %+v", end)
	}
}
