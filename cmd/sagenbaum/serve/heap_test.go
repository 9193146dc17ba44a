package serve

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// TestAHeapGrowsFurtherWhileItIsSmall: four times what lives in it, and less from where that
// would be more than the soft limit; a heap that is larger is collected as Go does by default.
func TestAHeapGrowsFurtherWhileItIsSmall(t *testing.T) {
	t.Parallel()
	const mib, soft = 1 << 20, 1000 << 20
	for _, c := range []struct {
		live uint64 // MiB
		want int
	}{{0, 400}, {1, 400}, {200, 400}, {250, 300}, {400, 150}, {500, 100}, {999, 100}, {5000, 100}} {
		got := growthFor(heapSample{live: c.live * mib, now: 2 * c.live * mib, scan: 2 * c.live * mib}, soft)
		if got != c.want {
			t.Errorf("%d MiB live: %d%%, want %d%%", c.live, got, c.want)
		}
		if grown := c.live * uint64(100+got) / 100; grown > max(1000, 2*c.live) {
			t.Errorf("%d MiB live: the heap grows to %d MiB", c.live, grown)
		}
	}
}

// TestAHeapOfBytesGrowsByWhatItHasOfPointers: freely while it is small, and always a little.
func TestAHeapOfBytesGrowsByWhatItHasOfPointers(t *testing.T) {
	t.Parallel()
	const mib, soft = 1 << 20, 1000 << 20
	for _, c := range []struct {
		live, now, scan uint64 // MiB
		want            int
	}{
		{10, 20, 0, 400},     // to 50 MiB
		{32, 60, 6, 100},     // to 64 MiB, which is free
		{80, 90, 9, 40},      // a tenth of it has pointers
		{80, 90, 0, 25},      // none
		{200, 400, 200, 200}, // half of it
		{200, 200, 400, 400}, // the runtime may count them later than the bytes
		{600, 600, 300, 50},  // half of Go's default
		{5000, 9000, 0, 25},  // never less
		{5000, 9000, 9000, 100},
	} {
		if got := growthFor(heapSample{live: c.live * mib, now: c.now * mib, scan: c.scan * mib}, soft); got != c.want {
			t.Errorf("%d MiB live, %d of %d with pointers: %d%%, want %d%%", c.live, c.scan, c.now, got, c.want)
		}
	}
}

// TestTheEndOfACollectionIsSaid: once for each time that it was asked for.
func TestTheEndOfACollectionIsSaid(t *testing.T) {
	collected := make(chan struct{}, 1)
	for range 3 {
		watchCycle(collected)
		runtime.GC()
		<-collected
	}
}

// TestAHeapThatIsLeftAloneIsCollected: once, and then at Go's default until there is work.
func TestAHeapThatIsLeftAloneIsCollected(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	const mib = 1 << 20
	h := heap{soft: 1000 * mib, at: start}
	for _, c := range []struct {
		what    string
		after   time.Duration
		sample  heapSample
		growth  int
		collect bool
	}{
		{"a collection", time.Second, heapSample{1, 100 * mib, 150 * mib, 150 * mib}, 400, false},
		{"more live", 2 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib}, 300, false},
		{"garbage, and not for long", 11 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib}, 0, false},
		{"garbage for long", 12 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib}, 100, true},
		{"its own collection", 13 * time.Second, heapSample{3, 120 * mib, 130 * mib, 130 * mib}, 0, false},
		{"little garbage for long", 40 * time.Second, heapSample{3, 120 * mib, 230 * mib, 230 * mib}, 0, false},
		{"work again", 41 * time.Second, heapSample{4, 120 * mib, 130 * mib, 130 * mib}, 400, false},
	} {
		growth, collect := h.next(start.Add(c.after), c.sample)
		if growth != c.growth || collect != c.collect {
			t.Errorf("%s: %d%% %v, want %d%% %v", c.what, growth, collect, c.growth, c.collect)
		}
	}
}

// TestWhoSetsTheCollectorIsLeftAlone: GOGC and GOMEMLIMIT are the operator's word.
func TestWhoSetsTheCollectorIsLeftAlone(t *testing.T) {
	growth := func() int {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	before := growth()
	for _, name := range []string{"GOGC", "GOMEMLIMIT", ""} {
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		want := growthMax
		if name != "" {
			t.Setenv(name, "150")
			want = before
		}
		stop := tuneHeap(context.Background())
		if got := growth(); got != want {
			t.Errorf("with %q: %d%%, want %d%%", name, got, want)
		}
		if stop(); growth() != before {
			t.Errorf("%d%% afterwards, was %d%%", growth(), before)
		}
	}
}

// TestTheMemoryOfAContainerIsItsGroups: of both versions, and those above it.
func TestTheMemoryOfAContainerIsItsGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		files map[string]string
		want  uint64
	}{
		{"nothing is known", nil, 0},
		{"a machine", map[string]string{"proc/meminfo": "MemTotal: 2048 kB\nMemFree: 1 kB\n"}, 2 << 20},
		{"version 2, bounded above", map[string]string{
			"proc/meminfo": "MemTotal: 2048 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 4096},
		{"version 2 in a container", map[string]string{
			"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": "8192\n"}, 8192},
		{"version 1", map[string]string{
			"proc/meminfo": "MemTotal: 2048 kB\n", "proc/self/cgroup": "4:memory:/a\n3:cpu:/a\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1024\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n"}, 1024},
		{"no bound", map[string]string{"proc/meminfo": "MemTotal: 1 kB\n",
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 1024},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memorySize(root); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, got, c.want)
		}
	}
}
