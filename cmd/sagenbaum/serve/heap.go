package serve

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector of Go's heap takes about a third of a processor for some ten milliseconds,
// and whatever is due meanwhile is late. By default it runs whenever the heap has doubled. A
// server whose live heap is small runs it less often, as long as the heap stays below
// heapSoftMax: see [heap]. Blobs that go through a server are blocks of up to some MiB, which are
// pooled for two collections and cheap to collect: where most of what is allocated are large
// objects, the heap grows by less.
const (
	heapSoftMax = 1 << 30 // bytes of heap at most by growing more than Go's default
	heapShare   = 4       // of the memory of this machine or container, one part in so many
	growthMin   = 100     // percent that the heap may grow by until it is collected: Go's default
	growthMax   = 400
	growthLeast = 25          // percent, where all that is allocated is large
	heapFree    = 64 << 20    // bytes that any heap may grow to, by growthMax at most
	heapPoll    = time.Second // how often it is looked whether the heap is idle
	// heapIdle is after how long without a collection a heap that has more than doubled is
	// collected: what a burst has left is given back.
	heapIdle = 10 * time.Second
)

// heap decides how far the heap of this process may grow before it is collected.
type heap struct {
	soft uint64     // bytes
	last heapSample // of the last collection
	at   time.Time  // of it
}

// heapSample is what the runtime says of the heap.
type heapSample struct {
	cycles    uint64 // collections so far
	live      uint64 // bytes, after the last one
	now       uint64 // bytes, with what is garbage since
	allocated uint64 // bytes so far
	small     uint64 // of them those of objects that have a size class: less than 32 KiB
}

// next returns by how many percent the heap may grow, or 0 where that stays as it is, and
// whether it has to be collected now, at growthMin.
func (h *heap) next(now time.Time, s heapSample) (growth int, collect bool) {
	switch {
	case s.cycles != h.last.cycles:
		growth = growthFor(s.live, s.allocated-h.last.allocated, s.small-h.last.small, h.soft)
		h.last, h.at = s, now
		return growth, false
	case now.Sub(h.at) >= heapIdle && s.now/2 > s.live:
		h.last.cycles, h.at = s.cycles+1, now
		return growthMin, true
	}
	return 0, false
}

// growthFor is by how many percent a heap may grow: up to the soft limit, never more than
// growthMax, and never less than growthMin: a limit that what is live comes close to must not
// make the process collect all the time. Where less than half of the bytes that were allocated
// since the collection before are small objects, it is only their share of it beyond heapFree, but
// for growthLeast.
func growthFor(live, allocated, small, soft uint64) int {
	if live == 0 {
		return growthMax
	}
	upTo := func(size uint64) uint64 { return (max(size, live) - live) * 100 / live }
	growth := min(max(upTo(soft), growthMin), growthMax)
	share := growth
	if 2*small < allocated {
		share = growth * small / allocated
	}
	return int(min(max(share, upTo(heapFree), growthLeast), growth))
}

// tuneHeap sets how far the heap may grow until stop is called. Whoever has set GOGC or
// GOMEMLIMIT has decided that.
func tuneHeap(ctx context.Context) (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	soft := uint64(heapSoftMax)
	if all := memorySize("/"); all > 0 {
		soft = min(soft, all/heapShare)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	before := debug.SetGCPercent(growthMax)
	go func() { // ends with stop
		defer close(ended)
		h := heap{soft: soft, at: time.Now()}
		var read heapReader
		ticks := time.NewTicker(heapPoll)
		defer ticks.Stop()
		collected := make(chan struct{}, 1)
		watchCycle(collected)
		for set := growthMax; ; {
			select {
			case <-ctx.Done():
				return
			case <-collected:
				watchCycle(collected)
			case <-ticks.C:
			}
			growth, collect := h.next(time.Now(), read.sample())
			if growth -= growth % 5; growth != 0 && growth != set {
				debug.SetGCPercent(growth)
				set = growth
			}
			if collect {
				runtime.GC()
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		debug.SetGCPercent(before)
	}
}

// watchCycle has the end of the next collection be said once.
func watchCycle(collected chan<- struct{}) {
	runtime.AddCleanup(&struct{ _ *byte }{}, func(collected chan<- struct{}) {
		select {
		case collected <- struct{}{}:
		default: // it is said already
		}
	}, collected)
}

// heapReader reads samples.
type heapReader struct{ metrics []metrics.Sample }

func (r *heapReader) sample() heapSample {
	if r.metrics == nil {
		for _, name := range []string{"/gc/cycles/total:gc-cycles", "/gc/heap/live:bytes",
			"/memory/classes/heap/objects:bytes", "/gc/heap/allocs:bytes",
			"/gc/heap/allocs-by-size:bytes"} {
			r.metrics = append(r.metrics, metrics.Sample{Name: name})
		}
	}
	metrics.Read(r.metrics)
	number := func(n int) uint64 { return r.metrics[n].Value.Uint64() }
	return heapSample{cycles: number(0), live: number(1), now: number(2), allocated: number(3),
		small: smallOf(r.metrics[4].Value.Float64Histogram())}
}

// smallOf is how many bytes of small objects were allocated. There is a bucket for each of their
// sizes, which ends where the next size begins, and one for all that are larger.
func smallOf(sizes *metrics.Float64Histogram) (bytes uint64) {
	for n, count := range sizes.Counts {
		if end := sizes.Buckets[n+1]; !math.IsInf(end, 1) {
			bytes += count * uint64(end-1)
		}
	}
	return bytes
}
