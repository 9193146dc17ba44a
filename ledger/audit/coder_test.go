package audit

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/RaduBerinde/btreemap"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// filler gives every field of a value something that no other has.
type filler struct{ n int }

// leftOut are fields that lead to other plans, or out of them, or follow from others.
var leftOut = []string{"family", "parent", "child", "listed", "plans", "paths"}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.Pointer:
		if _, is := v.Interface().(proto.Message); is {
			v.Set(reflect.New(v.Type().Elem()))
			switch k := v.Interface().(type) {
			case *pb.Address:
				k.Sequence, k.Leaf = uint64(f.n), []byte{1, 2}
			case *pb.PlanOpened:
				k.Label = fmt.Sprint(f.n)
			case *pb.ForwardRegistered:
				k.Capability = fmt.Sprint(f.n)
			case *pb.CompensationRegistered:
				k.Capability = fmt.Sprint(f.n)
			}
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); !slices.Contains(leftOut, v.Type().Field(i).Name) {
				f.fill(reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem())
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("s", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n) % 256)
	default:
		panic("no filling of a " + v.Kind().String())
	}
}

// TestWhatIsPutAwayComesBackWhole, field by field, also one that is added to a type and
// forgotten here; and what is cut short is none.
func TestWhatIsPutAwayComesBackWhole(t *testing.T) {
	f := &filler{}
	var one, two, three plan
	for _, p := range []*plan{&one, &two, &three} {
		f.fill(reflect.ValueOf(p).Elem())
	}
	two.parent, three.parent, three.actions[1].child = &one, &two, &one
	one.actions[0].child = &two
	kin := &family{id: one.id, plans: []*plan{&one, &two, &three}, listed: 3}
	for _, p := range kin.plans {
		p.family = kin
	}
	var stated fact
	f.fill(reflect.ValueOf(&stated).Elem())
	var fires firing
	f.fill(reflect.ValueOf(&fires).Elem())
	comesBack(t, kin, codeFamily)
	comesBack(t, &stated, codeFact)
	comesBack(t, &fires, codeFiringAt)
	if c := kin.clone(); !reflect.DeepEqual(c, kin) || c.plans[0] == kin.plans[0] || c.plans[1].parent != c.plans[0] {
		t.Error("a clone is another family, or leads back")
	}
}

func comesBack[T any](t *testing.T, v *T, coded func(*coder, **T)) {
	t.Helper()
	out := coder{}
	coded(&out, &v)
	var back *T
	in := coder{data: out.data, reads: true}
	if coded(&in, &back); in.bad || len(in.data) > 0 || !reflect.DeepEqual(v, back) {
		t.Fatalf("%T comes back as\n%+v, was\n%+v", v, back, v)
	}
	again := coder{}
	if coded(&again, &back); !bytes.Equal(again.data, out.data) {
		t.Errorf("%T is put away differently the second time", v)
	}
	for cut := range out.data {
		var part *T
		if in := (coder{data: out.data[:cut], reads: true}); cut > 0 {
			if coded(&in, &part); !in.bad && len(in.data) == 0 && reflect.DeepEqual(part, v) {
				t.Fatalf("%T is whole in %d of %d bytes", v, cut, len(out.data))
			}
		}
	}
}

// rack is a shelf in memory that counts.
type rack struct {
	values            map[string]string
	puts, gets, walks int
}

// Put implements Shelf.
func (r *rack) Put(key string, value []byte) { r.puts++; r.values[key] = string(value) }

// Get implements Shelf.
func (r *rack) Get(key string) ([]byte, bool) {
	r.gets++
	v, ok := r.values[key]
	return []byte(v), ok
}

// Each implements Shelf.
func (r *rack) Each(prefix string, each func(string, []byte)) {
	r.walks++
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		if strings.HasPrefix(key, prefix) {
			each(key, []byte(r.values[key]))
		}
	}
}

// TestAFactThatIsAssertedOftenIsKeptOnTheShelf: every instant of it is found again, and
// little of it is at hand; a fold on trial changes nothing.
func TestAFactThatIsAssertedOftenIsKeptOnTheShelf(t *testing.T) {
	shelf := &rack{values: map[string]string{}}
	b := newBook("t", triggers.NewCache(8), Memory{Shelf: shelf, HandMax: 1}, "b")
	plain := newBook("t", triggers.NewCache(8), Memory{}, "b")
	const times = 3*runLen + 100
	for n := range uint64(times) {
		for _, book := range []*book{b, plain} {
			for _, key := range []string{"beat", fmt.Sprint("other", n%3)} {
				book.now = int64(n+1) * 10
				e := ledger.Entry{Record: &pb.Record{}, Address: &pb.Address{Sequence: n + 1},
					Source: ledger.Source{Class: ledger.ClassFact}}
				book.noteFact(e, key, []byte("1"))
			}
			book.rest()
		}
		if n == 2*runLen {
			trial := b.trial()
			trial.now++
			trial.noteFact(ledger.Entry{Record: &pb.Record{}, Address: &pb.Address{}}, "beat", []byte("2"))
		}
	}
	if f := b.fact("beat"); len(f.times) > runLen || len(f.runs) != 3 || len(b.facts.values) > 2 {
		t.Fatalf("%d times and %d runs at hand, of %d facts", len(f.times), len(f.runs), len(b.facts.values))
	}
	for _, span := range [][2]int64{{0, times * 10}, {0, 10}, {runLen * 10, runLen*10 + 20}, {times * 9, times * 11}} {
		for _, book := range []*book{b, b.trial()} {
			got := slices.Collect(factView{book}.Occurrences("beat", span[0], span[1]))
			want := slices.Collect(factView{plain}.Occurrences("beat", span[0], span[1]))
			if !slices.Equal(got, want) || len(want) == 0 {
				t.Fatalf("%v: %d occurrences, want %d", span, len(got), len(want))
			}
		}
	}
	if string(b.fact("beat").value) != "1" || shelf.puts < 5 {
		t.Fatalf("%s, %d puts", b.fact("beat").value, shelf.puts)
	}
}

// TestAPrefixCostsWhatItHolds, and a fact what finding its place does, however many facts there are, from
// a shelf or not: all of them are looked through once, at the first question.
func TestAPrefixCostsWhatItHolds(t *testing.T) {
	const facts, prefixes, holds = 20000, 200, 3
	shelf := &rack{values: map[string]string{}}
	for _, m := range []Memory{{}, {Shelf: shelf, HandMax: 1 << 12}} {
		b := newBook("t", triggers.NewCache(8), m, "b")
		e := ledger.Entry{Record: &pb.Record{}, Address: &pb.Address{Sequence: 1}}
		for n := range facts {
			b.noteFact(e, fmt.Sprintf("job/%d/%d", n/holds, n%holds), []byte("1"))
			b.rest()
		}
		if b.names != nil {
			t.Fatal("keys are kept in order though no condition asks for a prefix")
		}
		if got := b.trial().named().Len(); got != facts || b.names == nil {
			t.Fatalf("%d keys on trial, want %d, and the book's own to be kept", got, facts)
		}
		steps := 0
		b.names = btreemap.New[string, struct{}](32, func(x, y string) int { steps++; return strings.Compare(x, y) })
		b.facts.each(b.listed)
		each := func(n, most int, what string, f func(n int)) {
			t.Helper()
			steps, shelf.walks, shelf.gets = 0, 0, 0
			for i := range n {
				f(i)
				b.rest()
			}
			if steps == 0 || steps > n*most || shelf.walks > 0 || shelf.gets > 2*n*holds {
				t.Errorf("%s takes %d steps, want 1 to %d; %d walks and %d gets in all", what, steps/n, most,
					shelf.walks, shelf.gets)
			}
		}
		under := func(b *book, n int) int {
			keys := 0
			for range (factView{b}).Under(fmt.Sprintf("job/%d/", n)) {
				keys++
			}
			return keys
		}
		each(prefixes, 100, "a prefix", func(n int) {
			if got := under(b, n); got != holds {
				t.Fatalf("%d facts, want %d", got, holds)
			}
		})
		each(prefixes, 200, "a prefix on trial", func(n int) {
			trial := b.trial()
			trial.noteTombstone(e, fmt.Sprintf("job/%d/1", n))
			trial.noteFact(e, fmt.Sprintf("job/%d/x", n), []byte("1"))
			trial.noteFact(e, fmt.Sprintf("job/%d/y", n), []byte("1"))
			if got := under(trial, n); got != holds+1 || under(b, n) != holds {
				t.Fatalf("%d facts on trial, want %d", got, holds+1)
			}
		})
		each(prefixes, 100, "a fact", func(n int) { b.noteFact(e, fmt.Sprintf("new/%d", n), []byte("1")) })
		each(prefixes, 100, "a fact that goes", func(n int) { b.noteTombstone(e, fmt.Sprintf("new/%d", n)) })
		if got := b.names.Len(); got != facts {
			t.Errorf("%d keys, want %d", got, facts)
		}
	}
}

// TestWhatIsHeldAfterTheCommitIsCounted: a plan that holds nothing is not looked through for it at each
// of its records, and the windows of a tree not once for each of its conditions.
func TestWhatIsHeldAfterTheCommitIsCounted(t *testing.T) {
	committed := func(conditions int) (*book, *plan) {
		b := newBook("t", triggers.NewCache(8), Memory{}, "b")
		b.now = 1
		p := &plan{id: "p", phase: ledger.StateCommitted, declared: &pb.PlanOpened{}}
		for i := range 100 {
			a := &action{n: uint32(i + 1), id: fmt.Sprint("a", i), undo: held, closesNs: 9, outcome: completed,
				forward: &pb.ForwardRegistered{}, compensation: &pb.CompensationRegistered{}}
			if i < conditions {
				a.leases = []*lease{{name: "x", text: "true", after: true}}
			}
			p.actions = append(p.actions, a)
		}
		return b, p
	}
	allocated := func(conditions int) float64 {
		b, p := committed(conditions)
		return testing.AllocsPerRun(10, func() { holdOn(b, []*plan{p}) })
	}
	if each := (allocated(100) - allocated(1)) / 99; each > 8 { // 15 where each looks at the whole plan
		t.Errorf("a condition more takes %v allocations", each)
	}
	b, p := committed(2)
	holdOn(b, []*plan{p})
	if list := p.heldOn(); p.holding != 2 || len(list) != 2 {
		t.Fatalf("%d are held, %d counted", len(list), p.holding)
	}
	releaseOf(b, p, p.actions[0])
	if list := p.heldOn(); p.holding != 1 || len(list) != 1 {
		t.Errorf("%d are held, %d counted", len(list), p.holding)
	}
	releaseOf(b, p, p.actions[1])
	p.actions = append(p.actions, nil) // looking at it would panic
	if list := p.heldOn(); p.holding != 0 || len(list) != 0 {
		t.Errorf("%d are held, %d counted", len(list), p.holding)
	}
}

// Alone calls f while of the actions of a plan none is at hand but those from one number to another:
// looking at another one would panic.
func (l *Ledger) Alone(plan string, from, to uint32, f func()) {
	var hidden []func()
	for _, b := range []*book{l.book, l.late} {
		p := b.plan(plan)
		if p == nil {
			continue
		}
		for i, a := range p.actions {
			if n := uint32(i + 1); n < from || n > to {
				p.actions[i] = nil
				hidden = append(hidden, func() { p.actions[i] = a })
			}
		}
	}
	f()
	for _, back := range hidden {
		back()
	}
}
