package door_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// BenchmarkPairs measures registered pairs: an action and its outcome, of as many plans at once, by
// the Go client, and by the door over NATS and HTTP. The figure is pairs/s.
func BenchmarkPairs(b *testing.B) {
	for _, at := range []int{16, 128} {
		for _, way := range []string{"go", "nats", "http"} {
			b.Run(fmt.Sprintf("%s-%d", way, at), func(b *testing.B) { pairs(b, way, at) })
		}
	}
}

func pairs(b *testing.B, way string, at int) {
	l := newLive(b)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = at
	nc := l.as("tripper")
	agent, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: tenant, Agent: "tripper", Published: true})
	if err != nil {
		b.Fatal(err)
	}
	token := l.token("tripper")
	ask := func(verb, body string) {
		if way == "nats" {
			reply, err := nc.Request(api.DoorSubject(tenant, "tripper", verb), []byte(body), time.Minute)
			if err != nil || strings.Contains(string(reply.Data), `"error"`) {
				b.Errorf("%s: %v %s", verb, err, reply.Data)
			}
			return
		}
		if status, a := l.send(token, "/v1/"+tenant+"/tripper/"+verb, "application/json", body); status != 200 {
			b.Errorf("%s: %v", verb, a)
		}
	}
	each := max(b.N/at, 1)
	var work sync.WaitGroup
	begin := make(chan struct{})
	var ready sync.WaitGroup
	for n := range at {
		p := fmt.Sprintf("%s-%d-%d-%d", way, at, n, b.N)
		ready.Add(1)
		work.Go(func() {
			var plan *coordinator.Plan
			if way == "go" {
				if plan, err = agent.Begin(b.Context(), coordinator.PlanSpec{ID: p}); err != nil {
					b.Error(err)
				}
			} else {
				ask("plan.begin", `{"plan":"`+p+`"}`)
			}
			ready.Done()
			<-begin
			for i := range each {
				if way == "go" {
					_, err := plan.Do(b.Context(), coordinator.Action{ID: fmt.Sprint(i), Capability: "hotel.book",
						Input: map[string]string{"city": "Rome"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
						return coordinator.Outcome{Output: 1}, nil
					})
					if err != nil {
						b.Error(err)
					}
					continue
				}
				ask("plan.act", fmt.Sprintf(`{"plan":%q,"action":"%d","capability":"hotel.book","input":{"city":"Rome"}}`, p, i))
				ask("plan.outcome", fmt.Sprintf(`{"plan":%q,"action":"%d","outcome":"completed","output":1}`, p, i))
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	start := time.Now()
	close(begin)
	work.Wait()
	b.ReportMetric(float64(at*each)/time.Since(start).Seconds(), "pairs/s")
}
