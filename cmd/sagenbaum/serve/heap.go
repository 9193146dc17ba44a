package serve

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector of Go's heap takes about a third of a processor for some ten milliseconds,
// and whatever is due meanwhile is late. By default it runs whenever the heap has doubled. A
// server whose live heap is small runs it less often, as long as the heap stays below
// heapSoftMax: see [heap]. What it takes is for what has pointers. A heap that is mostly bytes, as
// that of a server that blobs go through, is cheap to collect, and its blocks of some MiB are
// pooled for two collections: it grows by as much less as it has less pointers.
const (
	heapSoftMax = 1 << 30 // bytes of heap at most by growing more than Go's default
	heapShare   = 4       // of the memory of this machine or container, one part in so many
	growthMin   = 100     // percent that the heap may grow by until it is collected: Go's default
	growthMax   = 400
	growthLeast = 25          // percent, for a heap without pointers
	heapFree    = 64 << 20    // bytes that any heap may grow to, by growthMax at most
	heapPoll    = time.Second // how often it is looked whether the heap is idle
	// heapIdle is after how long without a collection a heap that has more than doubled is
	// collected: what a burst has left is given back.
	heapIdle = 10 * time.Second
)

// heap decides how far the heap of this process may grow before it is collected.
type heap struct {
	soft   uint64 // bytes
	cycles uint64 // collections so far
	at     time.Time
}

// heapSample is what the runtime says of the heap.
type heapSample struct {
	cycles uint64 // collections so far
	live   uint64 // bytes, after the last one
	now    uint64 // bytes, with what is garbage since
	scan   uint64 // bytes of now that may have pointers
}

// next returns by how many percent the heap may grow, or 0 where that stays as it is, and
// whether it has to be collected now, at growthMin.
func (h *heap) next(now time.Time, s heapSample) (growth int, collect bool) {
	switch {
	case s.cycles != h.cycles:
		h.cycles, h.at = s.cycles, now
		return growthFor(s, h.soft), false
	case now.Sub(h.at) >= heapIdle && s.now/2 > s.live:
		h.cycles, h.at = h.cycles+1, now
		return growthMin, true
	}
	return 0, false
}

// growthFor is by how many percent a heap may grow: up to the soft limit, never more than
// growthMax, and never less than growthMin: a limit that what is live comes close to must not
// make the process collect all the time. The share of it that has no pointers counts for nothing
// beyond heapFree, but for growthLeast.
func growthFor(s heapSample, soft uint64) int {
	if s.live == 0 {
		return growthMax
	}
	upTo := func(size uint64) uint64 { return (max(size, s.live) - s.live) * 100 / s.live }
	growth := min(max(upTo(soft), growthMin), growthMax)
	share := growth
	if s.scan < s.now {
		share = growth * s.scan / s.now
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
		samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/scan/heap:bytes"}}
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
			metrics.Read(samples)
			growth, collect := h.next(time.Now(), heapSample{cycles: samples[0].Value.Uint64(),
				live: samples[1].Value.Uint64(), now: samples[2].Value.Uint64(),
				scan: samples[3].Value.Uint64()})
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
