package jetstream_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// benchSize is the length of a commit in the benchmarks, about that of a pair.
const benchSize = 400

// BenchmarkAppend measures appends of single commits: one op is one
// acknowledged commit. Fenced ones are what an executor sends.
func BenchmarkAppend(b *testing.B) {
	for _, noSync := range []bool{false, true} {
		for _, clients := range []int{1, 16} {
			for _, fencing := range []bool{false, true} {
				b.Run(fmt.Sprintf("sync=%v/clients=%d/fenced=%v", !noSync, clients, fencing), func(b *testing.B) {
					benchAppend(b, noSync, clients, fencing)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, noSync bool, clients int, fencing bool) {
	server := startServer(b, embedded.Config{Dir: b.TempDir(), NoSync: noSync})
	store := openOn(b, server, connect(b, server))
	ctx := within(b, 10*time.Minute)
	term := mustAppend(b, ctx, store, fenced(termSubject, "term", 0))
	data := strings.Repeat("x", benchSize)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				a := commit("p", data)
				if fencing {
					a = fenced(executorSubject, data, term)
				}
				if _, err := store.Append(ctx, a); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkRead measures a reader that catches up: one op is one message.
func BenchmarkRead(b *testing.B) {
	for _, over := range []string{"memory", "tcp"} {
		b.Run(over, func(b *testing.B) {
			server := startServer(b, embedded.Config{Dir: b.TempDir(), NoSync: true})
			inside := connect(b, server)
			openOn(b, server, inside)
			publishMany(b, inside, b.N)
			conn := inside
			if over == "tcp" {
				var err error
				if conn, err = nats.Connect(server.URL()); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(conn.Close)
			}
			store := openOn(b, server, conn)
			b.ResetTimer()
			read := 0
			for _, err := range store.Read(within(b, 10*time.Minute), 1) {
				if err != nil {
					b.Fatal(err)
				}
				if read++; read == b.N {
					break
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func publishMany(b *testing.B, conn *nats.Conn, n int) {
	client, err := js.New(conn, js.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	data := []byte(strings.Repeat("x", benchSize))
	for range n {
		if _, err := client.PublishAsync("saga.t.agent.a1.p", data, js.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	<-client.PublishAsyncComplete()
}

// BenchmarkFollow measures how long after the start of an append its reader has
// the message: one op is one append and its delivery.
func BenchmarkFollow(b *testing.B) {
	server := startServer(b, embedded.Config{Dir: b.TempDir(), NoSync: true})
	store := openOn(b, server, connect(b, server))
	ctx := within(b, 10*time.Minute)
	delivered := make(chan struct{}, 1)
	started := make(chan struct{})
	go func() {
		first := true
		for _, err := range store.Read(ctx, 1) {
			if err != nil {
				return
			}
			if first {
				close(started)
				first = false
				continue
			}
			delivered <- struct{}{}
		}
	}()
	mustAppend(b, ctx, store, commit("p", "first"))
	<-started
	b.ResetTimer()
	for range b.N {
		mustAppend(b, ctx, store, commit("p", "x"))
		<-delivered
	}
}
