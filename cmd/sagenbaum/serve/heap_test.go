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
		got := growthFor(c.live*mib, c.live*mib, c.live*mib, soft)
		if got != c.want {
			t.Errorf("%d MiB live: %d%%, want %d%%", c.live, got, c.want)
		}
		if grown := c.live * uint64(100+got) / 100; grown > max(1000, 2*c.live) {
			t.Errorf("%d MiB live: the heap grows to %d MiB", c.live, grown)
		}
	}
}

// TestAHeapOfLargeObjectsGrowsByLess: freely while it is small, and always a little.
func TestAHeapOfLargeObjectsGrowsByLess(t *testing.T) {
	t.Parallel()
	const mib, soft = 1 << 20, 1000 << 20
	for _, c := range []struct {
		live, allocated, small uint64 // MiB
		want                   int
	}{
		{10, 20, 0, 400}, // to 50 MiB
		{32, 60, 3, 100}, // to 64 MiB, which is free
		{80, 90, 9, 40},  // a tenth
		{80, 90, 0, 25},  // nothing
		{80, 0, 0, 400},  // nothing was allocated: what another collection left
		{100, 400, 100, 100},
		{100, 400, 199, 199},
		{100, 400, 200, 400}, // half of it
		{600, 600, 150, 25},  // a quarter of Go's default
		{5000, 9000, 0, 25},  // never less
		{5000, 9000, 9000, 100},
	} {
		got := growthFor(c.live*mib, c.allocated*mib, c.small*mib, soft)
		if got != c.want {
			t.Errorf("%d MiB live, %d of %d in small objects: %d%%, want %d%%", c.live, c.small, c.allocated, got, c.want)
		}
	}
}

// TestTheSizesOfObjectsAreTold: bytes of small ones are counted as such, those of large ones are not.
func TestTheSizesOfObjectsAreTold(t *testing.T) {
	var read heapReader
	var kept [][]byte
	grew := func(size, count int) (all, small int) {
		before := read.sample()
		for range count {
			kept = append(kept[:0], make([]byte, size))
		}
		after := read.sample()
		return int(after.allocated - before.allocated), int(after.small - before.small)
	}
	for _, size := range []int{1 << 10, 16 << 10} {
		all, small := grew(size, 1000)
		if small < size*900 || small > size*1000+1<<20 || all < small || all > small+1<<20 {
			t.Errorf("of 1,000 times %d bytes %d are small, of %d", size, small, all)
		}
	}
	if all, small := grew(1<<20, 100); small > 1<<20 || all < 100<<20 {
		t.Errorf("of 100 times 1 MiB %d bytes are small, of %d", small, all)
	}
	runtime.KeepAlive(kept)
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
		{"a collection", time.Second, heapSample{1, 100 * mib, 150 * mib, 400 * mib, 300 * mib}, 400, false},
		{"more live", 2 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib, 800 * mib}, 300, false},
		{"garbage, and not for long", 11 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib, 800 * mib}, 0, false},
		{"garbage for long", 12 * time.Second, heapSample{2, 250 * mib, 900 * mib, 900 * mib, 800 * mib}, 100, true},
		{"its own collection", 13 * time.Second, heapSample{3, 120 * mib, 130 * mib, 910 * mib, 810 * mib}, 0, false},
		{"little garbage for long", 40 * time.Second, heapSample{3, 120 * mib, 230 * mib, 990 * mib, 880 * mib}, 0, false},
		{"work again", 41 * time.Second, heapSample{4, 120 * mib, 130 * mib, 1000 * mib, 890 * mib}, 400, false},
		{"large objects", 42 * time.Second, heapSample{5, 120 * mib, 130 * mib, 1200 * mib, 940 * mib}, 100, false},
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
