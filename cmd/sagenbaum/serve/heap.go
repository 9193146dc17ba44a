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
// heapSoftMax: see [heap].
const (
	heapSoftMax = 1 << 30 // bytes of heap at most by growing more than Go's default
	heapShare   = 4       // of the memory of this machine or container, one part in so many
	growthMin   = 100     // percent that the heap may grow by until it is collected: Go's default
	growthMax   = 400
	heapPoll    = time.Second
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
}

// next returns by how many percent the heap may grow, or 0 where that stays as it is, and
// whether it has to be collected now, at growthMin.
func (h *heap) next(now time.Time, s heapSample) (growth int, collect bool) {
	switch {
	case s.cycles != h.cycles:
		h.cycles, h.at = s.cycles, now
		return growthFor(s.live, h.soft), false
	case now.Sub(h.at) >= heapIdle && s.now/2 > s.live:
		h.cycles, h.at = h.cycles+1, now
		return growthMin, true
	}
	return 0, false
}

// growthFor is by how many percent a heap may grow: up to the soft limit, never more than
// growthMax, and never less than growthMin: a limit that what is live comes close to must not
// make the process collect all the time.
func growthFor(live, soft uint64) int {
	if live == 0 {
		return growthMax
	}
	room := uint64(0)
	if soft > live {
		room = (soft - live) * 100 / live
	}
	return int(min(max(room, growthMin), growthMax))
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
			{Name: "/memory/classes/heap/objects:bytes"}}
		ticks := time.NewTicker(heapPoll)
		defer ticks.Stop()
		for set := growthMax; ; {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			metrics.Read(samples)
			growth, collect := h.next(time.Now(), heapSample{cycles: samples[0].Value.Uint64(),
				live: samples[1].Value.Uint64(), now: samples[2].Value.Uint64()})
			if growth != 0 && growth != set {
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
