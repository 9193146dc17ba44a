package serve

import (
	"context"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"
	"time"
)

// TestAHeapGrowsFurtherWhileItIsSmall: four times what lives in it, and less from where that
// would be more than the soft limit; a heap that is larger is collected as Go does by default.
func TestAHeapGrowsFurtherWhileItIsSmall(t *testing.T) {
	t.Parallel()
	const soft = 1000
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1, 400}, {200, 400}, {250, 300}, {400, 150}, {500, 100}, {999, 100}, {5000, 100}} {
		got := growthFor(c.live, soft)
		if got != c.want {
			t.Errorf("%d live: %d%%, want %d%%", c.live, got, c.want)
		}
		if grown := c.live * uint64(100+got) / 100; grown > max(soft, 2*c.live) {
			t.Errorf("%d live: the heap grows to %d", c.live, grown)
		}
	}
}

// TestAHeapThatIsLeftAloneIsCollected: once, and then at Go's default until there is work.
func TestAHeapThatIsLeftAloneIsCollected(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	h := heap{soft: 1000, at: start}
	for _, c := range []struct {
		what    string
		after   time.Duration
		sample  heapSample
		growth  int
		collect bool
	}{
		{"a collection", time.Second, heapSample{1, 100, 150}, 400, false},
		{"more live", 2 * time.Second, heapSample{2, 250, 900}, 300, false},
		{"garbage, and not for long", 11 * time.Second, heapSample{2, 250, 900}, 0, false},
		{"garbage for long", 12 * time.Second, heapSample{2, 250, 900}, 100, true},
		{"its own collection", 13 * time.Second, heapSample{3, 120, 130}, 0, false},
		{"little garbage for long", 40 * time.Second, heapSample{3, 120, 230}, 0, false},
		{"work again", 41 * time.Second, heapSample{4, 120, 130}, 400, false},
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
