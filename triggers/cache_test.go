package triggers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// heapBytes is what is in use after a collection.
func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// weighed are conditions of every kind, of which no two have one shape.
var weighed = map[string]func(i int) string{
	"a field":  func(i int) string { return fmt.Sprintf(`facts["a"].x%d == 1`, i) },
	"an order": func(i int) string { return fmt.Sprintf(`facts["order/" + action.order].s%d == "cancelled"`, i) },
	"a window": func(i int) string {
		return fmt.Sprintf(`facts["a"].l%d >= 3 && absent_for("b", at("a"), duration("1h"))`, i)
	},
	"a loop": func(i int) string { return fmt.Sprintf(`["c1","c2"].exists(c, facts["step/" + c].s%d == "failed")`, i) },
	"arithmetic": func(i int) string {
		return fmt.Sprintf(`facts["a"].x%d%s > 5`, i, strings.Repeat(` + facts["a"].y * 2`, 12))
	},
	"a list": func(i int) string { return fmt.Sprintf(`facts["a"].x%d in [%s"z"]`, i, strings.Repeat(`"abc", `, 60)) },
	"scans": func(i int) string {
		return fmt.Sprintf(`facts["a"].x%d == 1%s`, i, strings.Repeat(` || facts["a"].y.contains("d")`, 12))
	},
	"an expression": func(i int) string { return fmt.Sprintf(`facts["a"].x%d.matches("^[a-z]+[0-9]{3}$")`, i) },
	"a map": func(i int) string {
		return fmt.Sprintf(`{"a%d": 1%s}["a"] == 1`, i, strings.Repeat(`, "b": {"c": facts["x"]}`, 20))
	},
	"choices": func(i int) string {
		return strings.Repeat(`facts["a"].b ? true : (`, 10) + fmt.Sprintf(`facts["a"].x%d`, i) + strings.Repeat(")", 10)
	},
	"a long chain": func(i int) string {
		return chainOf(24, func(n int) string { return fmt.Sprintf(`facts["k%d"].x%d == %d`, n, i, n) })
	},
	"terms in another order": func(i int) string {
		return chainOf(18, func(n int) string { return fmt.Sprintf(`facts["k%d"].f%d == 1`, n, (i>>n&1)*40+n) })
	},
	"a refusal":  func(i int) string { return fmt.Sprintf(`fatcs["a"].x%d == 1`, i) },
	"long texts": func(i int) string { return fmt.Sprintf(`facts["a"].x%d == "%s"`, i, strings.Repeat("x", 3500)) },
}

func chainOf(terms int, term func(n int) string) string {
	var parts []string
	for n := range terms {
		parts = append(parts, term(n))
	}
	return strings.Join(parts, " || ")
}

// TestAShapeWeighsWhatItTakes: what a cache counts is what the heap has, within a factor.
func TestAShapeWeighsWhatItTakes(t *testing.T) {
	for name, text := range weighed {
		t.Run(name, func(t *testing.T) {
			cache := NewCache(100_000)
			before := heapBytes()
			const conditions = 200
			for i := range conditions {
				_, _ = cache.Condition(text(i + 1000))
			}
			took := heapBytes() - before
			t.Logf("%d bytes each, counted %d", took/conditions, cache.weight/conditions)
			if took > cache.weight*3/2 || took < cache.weight/4 {
				t.Errorf("%d conditions take %d bytes, counted %d", conditions, took, cache.weight)
			}
			runtime.KeepAlive(cache)
		})
	}
}

// TestACacheIsBoundedInBytes, whatever is compiled, and counts nothing that it does not
// keep.
func TestACacheIsBoundedInBytes(t *testing.T) {
	const entries = 64
	cache := NewCache(entries)
	before := heapBytes()
	for i := range 400 {
		for _, text := range weighed {
			_, _ = cache.Condition(text(i))
		}
		_, _ = cache.Binding(fmt.Sprintf(`"a" + input.x%d`, i))
		_, _ = cache.Reader(fmt.Sprintf(`"a" + result.x%d`, i))
		if cache.weight > entries*entryBytes {
			t.Fatalf("round %d: %d bytes are counted", i, cache.weight)
		}
	}
	if took := heapBytes() - before; took > 2*entries*entryBytes {
		t.Errorf("%d bytes are kept, want about %d", took, entries*entryBytes)
	}
	for _, d := range []drawer{&cache.conditions, &cache.shapes, &cache.bindings, &cache.readers} {
		for d.oldest() <= cache.tick {
			d.drop()
		}
	}
	if cache.weight != 0 {
		t.Errorf("an empty cache counts %d bytes", cache.weight)
	}
}

// TestWhatIsKeptDoesNotKeepItsProgram: the cache lets a program go whoever keeps its
// condition, and gives the one that is in use another round.
func TestWhatIsKeptDoesNotKeepItsProgram(t *testing.T) {
	cache := NewCache(8)
	hold := func(i int) *Kept {
		c, err := cache.Condition(fmt.Sprintf(`facts["a"].x%d == 1`, i))
		if err != nil {
			t.Fatal(err)
		}
		return c.Hold(Scope{}).Keep(1 << 10)
	}
	used, idle := hold(0), hold(1)
	var room Held
	for i := range 100 {
		hold(2 + i)
		if !used.Recall(&room) {
			t.Fatalf("after %d: the program of a condition that is asked all the time is gone", i)
		}
	}
	if idle.Recall(&room) {
		t.Error("the program of a condition that nobody asks is still there")
	}
	again := hold(1)
	if !again.Recall(&room) || idle.Recall(&room) {
		t.Error("held again, its program is not there, or the old one is")
	}
}

// TestWhatIsKeptAnswersAsWhatIsHeld.
func TestWhatIsKeptAnswersAsWhatIsHeld(t *testing.T) {
	cache := NewCache(512)
	m := newMemory(t)
	m.now = start + second
	for i, value := range []string{`{"x":1,"a":"b","n":[1,2.5,"x",{"a":null}]}`, `"a"`, `1`, `1.5`, `{"a":{"b":true}}`} {
		m.assert(string(rune('a'+i)), value, start+int64(i)*second/8)
	}
	plan := Plan{ID: "a", Status: "open", OpenedNs: start, DeadlineNs: start + 2*second}
	plan.Labels = map[string]string{"region": "a"}
	action := &Action{ID: "a", AtNs: start, Input: []byte(`{"x":1,"a":"b","order":"a"}`)}
	scope := Scope{NowNs: m.now, ArmedNs: start, Plan: plan, Action: action}
	kept := 0
	for _, text := range append(append([]string{}, terms...), chainOf(5, func(n int) string { return terms[n] })) {
		c, err := cache.Condition(text)
		if err != nil {
			continue
		}
		h := c.Hold(scope)
		k := h.Keep(1 << 10)
		if k == nil {
			continue
		}
		kept++
		var room Held
		if !k.Recall(&room) {
			t.Fatalf("%s: its program is gone", text)
		}
		got, want := room.Evaluate(m.now, m), h.Evaluate(m.now, m)
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %+v, kept %+v", text, want, got)
		}
		if got, want := room.Watched(got, m.now, m), h.Watched(want, m.now, m); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s watches %q, kept %q", text, want, got)
		}
		if room.ReadsClock() != c.ReadsClock() || room.Computes() != h.Computes() || room.Size() != h.Size() {
			t.Errorf("%s: another condition as it is kept", text)
		}
	}
	if kept < len(terms)*3/4 {
		t.Errorf("%d of %d conditions are kept", kept, len(terms))
	}
}

// TestATextOfOneUseLeavesNothingBehind: a literal that is kept does not keep its text.
func TestATextOfOneUseLeavesNothingBehind(t *testing.T) {
	cache := NewCache(2)
	var kept []*Kept
	before := heapBytes()
	const conditions = 300
	for i := range conditions {
		c, err := cache.Condition(fmt.Sprintf(`facts["order/%d"].x == "y" // %s`, i, strings.Repeat("-", 4000)))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c.Hold(Scope{}).Keep(1<<10))
	}
	if took := (heapBytes() - before) / conditions; took > 500 {
		t.Errorf("%d bytes each", took)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(cache)
}
