package console

import (
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
)

// sample is one look at a tenant's counters.
type sample struct {
	at             time.Time
	records, ended uint64
}

// rates keeps looks at the counters of each tenant, the latest last.
type rates struct {
	mu      sync.Mutex
	samples map[string][]sample
}

// sample looks at the counters every ratesEvery, until the console is closed.
func (s *Server) sample() {
	tick := time.NewTicker(ratesEvery)
	defer tick.Stop()
	for {
		if a := s.attached(); a != nil {
			for _, tenant := range a.Tenants() {
				if pulse, err := a.Pulse(tenant); err == nil {
					s.rates.add(tenant, sample{time.Now(), pulse.Records, pulse.Ended})
				}
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// add takes in one look.
func (r *rates) add(tenant string, s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.samples[tenant]
	if n := len(list); n > 0 && s.records < list[n-1].records { // folded again from the beginning
		list = nil
	}
	if len(list) == ratesKept {
		list = append(list[:0], list[1:]...)
	}
	r.samples[tenant] = append(list, s)
}

// of is the rate of a tenant over the last minute, as far as it was looked at.
func (r *rates) of(tenant string) (rate web.Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.samples[tenant]
	if len(list) < 2 {
		return rate
	}
	last := list[len(list)-1]
	first := list[max(0, len(list)-1-int(time.Minute/ratesEvery))]
	rate.Over = last.at.Sub(first.at)
	if s := rate.Over.Seconds(); s > 0 {
		rate.Records = float64(last.records-first.records) / s
		rate.Ended = float64(last.ended-first.ended) / s
	}
	for i := max(1, len(list)-60); i < len(list); i++ {
		s := list[i].at.Sub(list[i-1].at).Seconds()
		rate.Spark = append(rate.Spark, float64(list[i].records-list[i-1].records)/max(s, 0.001))
	}
	return rate
}
