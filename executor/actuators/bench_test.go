package actuators

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// BenchmarkSend is the way of a command to a worker and back, without the worker's own
// work: so many at once, over the server in process.
func BenchmarkSend(b *testing.B) {
	for _, atOnce := range []int{1, 64} {
		b.Run(fmt.Sprint(atOnce, " at once"), func(b *testing.B) {
			conn, a := connected(b)
			const key = "0f3a5c7e9b1d2f4a6c8e0b1d3f5a7c9e"
			answer := []byte(`{"key":"` + key + `","attempt":1,"status":"done","worker":"w","work_ns":1}`)
			if _, err := conn.QueueSubscribe("undo.t.x", "workers", func(m *nats.Msg) { _ = m.Respond(answer) }); err != nil {
				b.Fatal(err)
			}
			c := api.Command{
				Purpose: ledger.PurposeUndo, Tenant: "t", Capability: "x", Plan: "p", Action: "a", Key: key, Attempt: 1,
				Arguments: []byte(`{"path":"/tmp/a"}`), TimeoutMs: 60_000,
			}
			places, results := make(chan struct{}, atOnce), new(atomic.Int64)
			b.ReportAllocs()
			for b.Loop() {
				places <- struct{}{}
				a.Send(c, func(r Result) {
					if r.Fate == Replied {
						results.Add(1)
					}
					<-places
				})
			}
			for range atOnce {
				places <- struct{}{}
			}
			if n := results.Load(); n != int64(b.N) {
				b.Fatalf("%d answers to %d commands", n, b.N)
			}
		})
	}
}
