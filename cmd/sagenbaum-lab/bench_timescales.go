package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
	"github.com/sagenbaum/sagenbaum/triggers/timescales"
)

// monitor is a fold with one open plan, whose trigger is a property of a trace.
type monitor struct {
	property timescales.Property
	keys     []string // that the trigger reads
	state    *executor.State
	opened   int64 // unix ns
	sequence uint64
	subject  string // of facts

	// What it cost. Evaluations are records that the trigger reads, and due instants.
	took        time.Duration // of processors
	records     int
	evaluations int
}

// monitorEpoch is when the plan of a monitor is opened, in unix ns.
const monitorEpoch = int64(1_700_000_000e9)

// newMonitor opens the plan; watching is false for the same fold without the trigger.
func newMonitor(p timescales.Property, scale int, watching bool) (*monitor, error) {
	m := &monitor{
		property: p, state: executor.Open(rows.NewMemoryKV(), benchTenant, nil),
		opened: monitorEpoch,
		subject: ledger.Source{Tenant: benchTenant, Class: ledger.ClassFact,
			Name: "trace"}.Subject(),
	}
	opened := &pb.PlanOpened{Label: p.Name}
	if watching {
		condition, err := triggers.Compile(p.Condition(scale))
		if err != nil {
			return nil, fmt.Errorf("cannot compile the trigger of %s: %w", p.Name, err)
		}
		m.keys, _ = condition.Keys()
		opened.Triggers = []*pb.Trigger{{Name: p.Name, Condition: p.Condition(scale)}}
	}
	holder := ledger.Source{Tenant: benchTenant, Class: ledger.ClassExecutor, Term: true}
	agent := ledger.Source{Tenant: benchTenant, Class: ledger.ClassAgent, Name: "agent",
		Plan: "plan"}
	for _, first := range []struct {
		source ledger.Source
		record *pb.Record
	}{
		{holder, &pb.Record{Term: 1,
			Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h"}}}},
		{agent, &pb.Record{Plan: "plan", Kind: &pb.Record_PlanOpened{PlanOpened: opened}}},
	} {
		entries, err := m.commit(first.source.Subject(), m.opened, first.record)
		if err != nil {
			return nil, err
		}
		if err := m.fold(entries); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// commit returns records as the ledger gives them back.
func (m *monitor) commit(subject string, ns int64, records ...*pb.Record) ([]ledger.Entry, error) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		return nil, err
	}
	m.sequence++
	return ledger.Decode(benchTenant,
		ledger.Message{Sequence: m.sequence, StampNs: ns, Subject: subject, Data: data})
}

func (m *monitor) fold(entries []ledger.Entry) error {
	for i := range entries {
		if result := m.state.Apply(entries[i]); result.Verdict != executor.Effective {
			return fmt.Errorf("cannot fold record %d of the trace: %s", entries[i].Address.Sequence,
				result.Reason)
		}
	}
	return nil
}

// rowsPerTurn is how many rows are decoded ahead and flushed together.
const rowsPerTurn = 256

// run folds the trace and asks for decisions when one is due, until the trigger
// fires. It returns the row at whose instant it fired, -1: none.
func (m *monitor) run(rows []timescales.Row) (int, error) {
	for from := 0; from < len(rows); from += rowsPerTurn {
		if fired, err := m.turn(rows, from); err != nil || fired >= 0 {
			return fired, err
		}
	}
	return -1, nil
}

// turn is run for the rows of one turn. The time it counts is that of fold and
// decisions, not of making the rows and decoding them.
func (m *monitor) turn(rows []timescales.Row, from int) (int, error) {
	var commits [rowsPerTurn][]ledger.Entry
	to := min(from+rowsPerTurn, len(rows))
	for i := from; i < to; i++ {
		entries, err := m.row(i, rows[i])
		if err != nil {
			return -1, err
		}
		commits[i-from] = entries
	}
	start := processorTime()
	defer func() { m.took += processorTime() - start }()
	for i := from; i < to; i++ {
		fired, err := m.step(commits[i-from], timescales.AtNs(m.opened, i))
		if err != nil {
			return -1, err
		}
		if fired {
			return i, nil
		}
	}
	m.state.Flush()
	return -1, nil
}

// row returns the commit of one row.
func (m *monitor) row(number int, row timescales.Row) ([]ledger.Entry, error) {
	var records []*pb.Record
	for _, fact := range m.property.Facts(number, row) {
		records = append(records,
			&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fact.Key,
				Value: []byte(fact.Value)}}})
		for _, key := range m.keys {
			if key == fact.Key {
				m.evaluations++
			}
		}
	}
	m.records += len(records)
	return m.commit(m.subject, timescales.AtNs(m.opened, number), records...)
}

// step folds one row and decides at its instant. A wake instant before it is the
// instant of no row, and a trigger that fires there fires too early.
func (m *monitor) step(entries []ledger.Entry, ns int64) (fired bool, err error) {
	if wake, ok := m.state.NextWake(); ok && wake < ns {
		if records := m.decide(wake); len(records) > 0 {
			return false, fmt.Errorf("%s fired between two rows, at %d ns", m.property.Name, wake)
		}
	}
	if err := m.fold(entries); err != nil {
		return false, err
	}
	if wake, ok := m.state.NextWake(); !ok || wake > ns {
		return false, nil
	}
	for _, r := range m.decide(ns) {
		if r.GetLeaseFired() != nil && r.EpochNs == ns {
			return true, nil
		}
	}
	return false, nil
}

func (m *monitor) decide(ns int64) []*pb.Record {
	m.evaluations++
	return m.state.Decide(executor.Input{EpochNs: ns, SizeMax: 60 << 10})
}

// benchTimescales prints, for each property and scale, what its trace costs with
// the trigger and without, and whether the trigger fired when the oracle says.
func benchTimescales(ctx context.Context, out io.Writer, b *benching, _ string) error {
	fmt.Fprintf(out,
		"\ntimescales, ten properties over traces of %d rows, folded into memory; per second of "+
			"processor time\n", b.rows)
	fmt.Fprintf(out, "  %-10s %5s %9s %10s %13s %12s %8s  %s\n", "", "bound", "rows/s", "records/s",
		"no trigger", "evaluations", "ns each", "first violation")
	for _, p := range timescales.Properties() {
		for _, scale := range []int{10, 100, 1000} {
			if err := benchProperty(ctx, out, p,
				timescales.Order{Kind: timescales.Planted, Scale: scale, Rows: b.rows,
					Seed: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

func benchProperty(ctx context.Context, out io.Writer, p timescales.Property,
	o timescales.Order) error {
	rows := p.Trace(o)
	want := p.Violation(rows, o.Scale)
	watched, err := newMonitor(p, o.Scale, true)
	if err != nil {
		return err
	}
	alone, err := newMonitor(p, o.Scale, false)
	if err != nil {
		return err
	}
	fired := -1
	for from := 0; from < len(rows) && fired < 0; from += rowsPerTurn {
		if err := ctx.Err(); err != nil {
			return err
		}
		if fired, err = watched.turn(rows, from); err != nil {
			return err
		}
		// turn by turn, so that both meet the same noise
		if _, err := alone.turn(rows, from); err != nil {
			return err
		}
	}
	if fired != want {
		return fmt.Errorf("%s with bound %d fired at row %d, the oracle says %d (-1: never)",
			p.Name, o.Scale, fired, want)
	}
	cost := "-"
	if watched.evaluations >= watched.records/20 { // fewer are lost in the noise
		cost = fmt.Sprintf("%.0f", float64(watched.took-alone.took)/float64(watched.evaluations))
	}
	fmt.Fprintf(out, "  %-10s %5d %9.0f %10.0f %11.0f/s %12d %8s  row %d, as the oracle\n", p.Name,
		o.Scale,
		float64(want+1)/watched.took.Seconds(), float64(watched.records)/watched.took.Seconds(),
		float64(alone.records)/alone.took.Seconds(),
		watched.evaluations, cost, fired)
	return nil
}
