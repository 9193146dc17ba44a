// Package observe shows people and their tools what a host does: numbers for Prometheus,
// spans of what is on its way to workers, and the room on its disks. No decision reads them.
package observe

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Metrics are the numbers of a process for Prometheus. They outlive the hosts that
// run in it one after the other. Every number follows a change: a tenant in which
// nothing happens, and a registration that is only held, cost nothing.
//
// A host counts what it folds while it is attached, whether it holds the tenant or
// stands by; what it folds again at a start is history and not counted. Of several
// hosts of a tenant each has the same numbers: take the maximum, not the sum.
type Metrics struct {
	registry *prometheus.Registry
	disks    []Disk

	held, plans, cuts, faulty, inFlight, waiting, unpaged, oldest, behind, nextDue, mode,
	tenants, used, limits *prometheus.GaugeVec

	records, fired, dispatched, undone, failed, skipped, quarantines, windows, refused,
	voided *prometheus.CounterVec
	inDoubt, pages    *prometheus.CounterVec
	replies, requests *prometheus.CounterVec

	dispatchLatency, undoLatency, appendLatency, foldDelay *prometheus.HistogramVec

	clockAhead prometheus.Gauge

	mu     sync.Mutex
	meters map[string]*Meter
}

// Reasons why a message on a subject that the host serves is not taken as a request.
const (
	RefusedReplyTo   = "reply_to"  // no reply subject, or one that is no inbox
	RefusedBody      = "body"      // not JSON, or a field that the verb does not have
	RefusedQuestions = "questions" // too many of the user or the tenant are waiting
)

// scrapesMax is how many scrapes are answered at once.
const scrapesMax = 4

// Disk is a folder whose file system is shown.
type Disk struct{ Store, Dir string }

// tenantsMetered bounds the tenants that have numbers of their own; all others share
// those of othersMetered, which is no name of a tenant.
const (
	tenantsMetered = 100
	othersMetered  = "(others)"
)

// latencies are the upper bounds, in seconds, of what is measured in time.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
	300, 1800, 7200, 43200}

// NewMetrics makes the numbers of a process; the file systems of the folders are
// asked at each scrape.
func NewMetrics(disks ...Disk) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), disks: disks, meters: map[string]*Meter{}}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		of := prometheus.GaugeOpts{Namespace: "sagenbaum", Name: name, Help: help}
		v := prometheus.NewGaugeVec(of, labels)
		m.registry.MustRegister(v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		of := prometheus.CounterOpts{Namespace: "sagenbaum", Name: name, Help: help}
		v := prometheus.NewCounterVec(of, labels)
		m.registry.MustRegister(v)
		return v
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "sagenbaum", Name: name,
			Help: help, Buckets: latencies}, []string{"tenant"})
		m.registry.MustRegister(v)
		return v
	}
	m.held = gauge("held", "Registrations that are held: an unwind would owe their undo.", "tenant")
	m.plans = gauge("plans", "Plans by state: open, unwinding, quarantined.", "tenant", "state")
	m.cuts = gauge("cascades_cut", "Plans with a lease that a cascade limit holds.", "tenant")
	m.faulty = gauge("conditions_faulty", "Conditions in error, which nothing makes fire.", "tenant")
	m.inFlight = gauge("in_flight",
		"Commands on their way to workers, while this host holds the tenant.", "tenant")
	m.waiting = gauge("waiting", "Commands of them that no worker takes, or not sent.", "tenant")
	m.unpaged = gauge("pages_waiting", "Pages that no one has taken yet.", "tenant")
	m.oldest = gauge("pages_oldest_timestamp_seconds",
		"Unix time of the oldest page that no one has taken; 0: none waits.", "tenant")
	m.behind = gauge("fold_lag_commits",
		"Commits that are known to be in the ledger and not folded yet.", "tenant")
	m.nextDue = gauge("next_due_timestamp_seconds",
		"When time calls for the next decision, unix time; 0: never as things are.", "tenant")
	m.mode = gauge("mode", "1 for the mode that the tenant is in on this host: starting, standby, "+
		"holding, clock-guard, halted, degraded, erased.", "tenant", "mode")
	m.tenantGauges(gauge)
	m.records = counter("records_folded_total", "Records folded as they came.", "tenant")
	m.fired = counter("leases_fired_total", "Leases that fired.", "tenant")
	m.dispatched = counter("dispatches_total", "Attempts of undos and questions dispatched.", "tenant")
	m.undone = counter("undos_total", "Undos that succeeded.", "tenant")
	m.failed = counter("undo_failures_total", "Attempts of undos that failed.", "tenant")
	m.skipped = counter("undos_skipped_total", "Undos that were not needed.", "tenant")
	m.quarantines = counter("quarantines_total", "Actions that were quarantined.", "tenant")
	m.windows = counter("windows_closing_total", "Undo windows about to close.", "tenant")
	m.refused = counter("records_refused_total", "Records that broke a rule.", "tenant")
	m.voided = counter("records_void_total", "Records that lost a race in the ledger.", "tenant")
	m.inDoubt = counter("appends_in_doubt_total",
		"Appends of this host without an answer, or refused by the stream.", "tenant")
	m.pages = counter("pages_total", "Tries to deliver a page, by what became of them: taken, failed.",
		"tenant", "result")
	m.replies = counter("replies_refused_total",
		"Answers that did not count: unknown (late), unreadable, echo; or a field.", "tenant", "reason")
	m.requests = counter("requests_refused_total",
		"Messages not taken as requests: reply_to (no inbox), body, questions.", "tenant", "reason")
	m.dispatchLatency = histogram("dispatch_latency_seconds",
		"From the decision to dispatch, to the sending of the command.")
	m.undoLatency = histogram("undo_latency_seconds",
		"From the first dispatch of an undo to its success.")
	m.appendLatency = histogram("append_latency_seconds",
		"Until the ledger has acknowledged an append of this host.")
	m.foldDelay = histogram("fold_delay_seconds", "From the stamp of a commit to its fold.")
	m.clockAhead = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "sagenbaum",
		Name: "clock_ahead_seconds",
		Help: "By how much the wall clock is ahead of the monotonic clock, " +
			"when a decision was last made."})
	m.registry.MustRegister(m.clockAhead, diskCollector{m}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) tenantGauges(gauge func(string, string, ...string) *prometheus.GaugeVec) {
	m.tenants = gauge("tenants", "Tenants of this host by mode.", "mode")
	m.used = gauge("limit_used", "What a tenant uses of what is limited.", "tenant", "limit")
	m.limits = gauge("limit", "The most that a tenant may use, where that is limited.", "tenant",
		"limit")
}

// Handler serves the numbers in the formats of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: scrapesMax})
}

// Tenant returns the meter of a tenant; nil Metrics have none. A nil Meter counts nothing.
func (m *Metrics) Tenant(name string) *Meter {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.meters) >= tenantsMetered && m.meters[name] == nil {
		name = othersMetered
	}
	if m.meters[name] == nil {
		m.meters[name] = m.newMeter(name)
	}
	return m.meters[name]
}

// Meter has the numbers of one tenant, or of all that have none of their own. Its methods may
// be called from any goroutine, and on nil.
type Meter struct {
	of     *Metrics
	tenant string

	held, open, unwinding, quarantined, cuts, faulty, inFlight, waiting, unpaged, oldest, behind,
	nextDue prometheus.Gauge

	records, fired, dispatched, undone, failed, skipped, quarantines, windows, refused,
	voided prometheus.Counter
	inDoubt, pagesTaken,
	pagesFailed prometheus.Counter

	dispatchLatency, undoLatency, appendLatency, foldDelay prometheus.Observer
}

func (m *Metrics) newMeter(tenant string) *Meter {
	for _, reason := range actuators.RefusalReasons { // so that they begin with 0
		m.replies.WithLabelValues(tenant, reason)
	}
	for _, reason := range [...]string{RefusedReplyTo, RefusedBody, RefusedQuestions} {
		m.requests.WithLabelValues(tenant, reason)
	}
	for _, mode := range api.Modes {
		m.mode.WithLabelValues(tenant, mode)
	}
	return &Meter{
		of: m, tenant: tenant,
		held: m.held.WithLabelValues(tenant), cuts: m.cuts.WithLabelValues(tenant),
		faulty:      m.faulty.WithLabelValues(tenant),
		open:        m.plans.WithLabelValues(tenant, "open"),
		unwinding:   m.plans.WithLabelValues(tenant, "unwinding"),
		quarantined: m.plans.WithLabelValues(tenant, "quarantined"),
		inFlight:    m.inFlight.WithLabelValues(tenant), waiting: m.waiting.WithLabelValues(tenant),
		unpaged: m.unpaged.WithLabelValues(tenant), oldest: m.oldest.WithLabelValues(tenant),
		behind: m.behind.WithLabelValues(tenant), nextDue: m.nextDue.WithLabelValues(tenant),
		records: m.records.WithLabelValues(tenant), fired: m.fired.WithLabelValues(tenant),
		dispatched: m.dispatched.WithLabelValues(tenant),
		undone:     m.undone.WithLabelValues(tenant), failed: m.failed.WithLabelValues(tenant),
		skipped:     m.skipped.WithLabelValues(tenant),
		quarantines: m.quarantines.WithLabelValues(tenant), windows: m.windows.WithLabelValues(tenant),
		refused: m.refused.WithLabelValues(tenant), voided: m.voided.WithLabelValues(tenant),
		inDoubt:         m.inDoubt.WithLabelValues(tenant),
		pagesTaken:      m.pages.WithLabelValues(tenant, "taken"),
		pagesFailed:     m.pages.WithLabelValues(tenant, "failed"),
		dispatchLatency: m.dispatchLatency.WithLabelValues(tenant),
		undoLatency:     m.undoLatency.WithLabelValues(tenant),
		appendLatency:   m.appendLatency.WithLabelValues(tenant),
		foldDelay:       m.foldDelay.WithLabelValues(tenant),
	}
}

// Levels are the numbers of a tenant that go up and down.
type Levels struct {
	Held, Open, Unwinding, Quarantined, Cuts, Faulty uint64

	Used, Limits LimitLevels // Limits: 0 is none

	NextDueNs int64 // when time calls for the next decision, unix ns; 0: never as things are
}

// LimitLevels are numbers of what is limited.
type LimitLevels struct{ OpenPlans, Facts, HeldConditions, Bytes uint64 }

// limited shows what a tenant uses of what it may. Those without numbers of their own have none:
// a sum of limits says nothing.
func (t *Meter) limited(was, is Levels) {
	if t.tenant == othersMetered || was.Used == is.Used && was.Limits == is.Limits {
		return
	}
	for _, of := range [...]struct {
		name      string
		used      uint64
		was, most uint64
	}{
		{"open_plans", is.Used.OpenPlans, was.Limits.OpenPlans, is.Limits.OpenPlans},
		{"facts", is.Used.Facts, was.Limits.Facts, is.Limits.Facts},
		{"held_conditions", is.Used.HeldConditions, was.Limits.HeldConditions,
			is.Limits.HeldConditions},
		{"bytes", is.Used.Bytes, was.Limits.Bytes, is.Limits.Bytes},
	} {
		t.of.used.WithLabelValues(t.tenant, of.name).Set(float64(of.used))
		switch {
		case of.most != 0:
			t.of.limits.WithLabelValues(t.tenant, of.name).Set(float64(of.most))
		case of.was != 0:
			t.of.limits.DeleteLabelValues(t.tenant, of.name)
		}
	}
}

// level shows a tenant's numbers in place of those that were shown before. A shared gauge
// moves by the differences.
func (t *Meter) level(was, is Levels) {
	if t == nil || was == is {
		return
	}
	for _, g := range [...]struct {
		gauge   prometheus.Gauge
		was, is uint64
	}{
		{t.held, was.Held, is.Held}, {t.open, was.Open, is.Open},
		{t.unwinding, was.Unwinding, is.Unwinding},
		{t.quarantined, was.Quarantined, is.Quarantined}, {t.cuts, was.Cuts, is.Cuts},
		{t.faulty, was.Faulty, is.Faulty},
	} {
		if g.was != g.is {
			g.gauge.Add(float64(g.is) - float64(g.was))
		}
	}
	t.limited(was, is)
	if t.tenant != othersMetered {
		t.nextDue.Set(float64(is.NextDueNs) / 1e9)
	}
}

// Mode shows that a tenant has come from one mode into another; empty: it is not run.
func (t *Meter) Mode(was, is string) {
	if t == nil || was == is {
		return
	}
	if was != "" {
		t.of.tenants.WithLabelValues(was).Dec()
		t.of.mode.WithLabelValues(t.tenant, was).Dec()
	}
	if is != "" {
		t.of.tenants.WithLabelValues(is).Inc()
		t.of.mode.WithLabelValues(t.tenant, is).Inc()
	}
}

// Lag shows how many commits are known to be in the ledger and not folded, in place of those
// that were shown before.
func (t *Meter) Lag(was, is uint64) {
	if t != nil && was != is {
		t.behind.Add(float64(is) - float64(was))
	}
}

// Flying moves the numbers of commands on their way, and of those without a worker.
func (t *Meter) Flying(commands, waiting int) {
	if t != nil && (commands != 0 || waiting != 0) {
		t.inFlight.Add(float64(commands))
		t.waiting.Add(float64(waiting))
	}
}

// Stored shows what became of an append that began at an instant.
func (t *Meter) Stored(began time.Time, err error) {
	switch {
	case t == nil, errors.Is(err, ledger.ErrConflict):
	case err != nil:
		t.inDoubt.Inc()
	default:
		t.appendLatency.Observe(time.Since(began).Seconds())
	}
}

// Page shows what became of a try to deliver a page.
func (t *Meter) Page(err error) {
	switch {
	case t == nil:
	case err != nil:
		t.pagesFailed.Inc()
	default:
		t.pagesTaken.Inc()
	}
}

// Unpaged moves the number of pages that no one has taken.
func (t *Meter) Unpaged(by int) {
	if t != nil && by != 0 {
		t.unpaged.Add(float64(by))
	}
}

// ClockAhead shows by how much the wall clock is ahead of the monotonic clock.
func (t *Meter) ClockAhead(by time.Duration) {
	if t != nil {
		t.of.clockAhead.Set(by.Seconds())
	}
}

// OldestPage shows since when the oldest page waits; 0: none does.
func (t *Meter) OldestPage(ns int64) {
	if t != nil && t.tenant != othersMetered {
		t.oldest.Set(float64(ns) / 1e9)
	}
}

// RefusedReply counts an answer of a worker, or a part of one, that did not count.
func (t *Meter) RefusedReply(reason string) {
	if t != nil {
		t.of.replies.WithLabelValues(t.tenant, reason).Inc()
	}
}

// RefusedRequest counts a message that was not taken as a request.
func (t *Meter) RefusedRequest(reason string) {
	if t != nil {
		t.of.requests.WithLabelValues(t.tenant, reason).Inc()
	}
}

// verdict counts what the fold said of a record.
func (t *Meter) verdict(v executor.Verdict) {
	t.records.Inc()
	switch v {
	case executor.Refused:
		t.refused.Inc()
	case executor.Void:
		t.voided.Inc()
	}
}
