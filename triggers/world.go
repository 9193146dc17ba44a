package triggers

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

type worldKind uint8

const (
	worldFacts worldKind = iota
	worldAction
	worldInput
	worldOutput
	worldPlanLabels
	worldActionLabels
)

// wholeWorld returns the world that a variable is which is read by the names of
// its fields.
func wholeWorld(name string) (worldKind, bool) {
	switch name {
	case "action":
		return worldAction, true
	case "action.input":
		return worldInput, true
	case "action.output":
		return worldOutput, true
	case "plan.labels":
		return worldPlanLabels, true
	case "action.labels":
		return worldActionLabels, true
	}
	return 0, false
}

// world is something that an expression reads by name and never as a whole. It
// is an Indexer, a FieldTester and a Container but no Mapper, which makes it two
// worlds at once: selecting what is absent asks the open world and is unknown,
// while `in`, has() and [?k] ask what is known now.
type world struct {
	e    *evaluation
	kind worldKind
}

// Get answers a selection.
func (w *world) Get(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	if w.opens(string(name)) {
		return w.e.unknown(wait{kind: waitText, name: string(name)})
	}
	value, missing := w.find(string(name))
	if value == nil {
		return w.e.unknown(missing)
	}
	return value
}

// IsSet answers has() and [?k].
func (w *world) IsSet(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	if w.opens(string(name)) {
		return w.e.unknown(wait{kind: waitText, name: string(name)})
	}
	if w.kind == worldFacts {
		return types.Bool(w.e.read(string(name)).Fact != nil)
	}
	value, _ := w.find(string(name))
	if w.e.open && types.IsUnknown(value) {
		return value
	}
	return types.Bool(value != nil && !types.IsUnknown(value))
}

// opens reports whether what is under name may change, for one who asks what no future changes.
func (w *world) opens(name string) bool {
	return w.e.open && (w.kind == worldFacts || w.kind == worldAction && !settled("action."+name))
}

// Contains answers `in`.
func (w *world) Contains(key ref.Val) ref.Val { return w.IsSet(key) }

// find returns the value under name, or nil and what its absence waits for.
func (w *world) find(name string) (ref.Val, wait) {
	e := w.e
	switch w.kind {
	case worldFacts:
		fact := e.read(name)
		if fact.Fact == nil {
			return nil, wait{kind: waitFact, name: name}
		}
		return e.value(fact), wait{}
	case worldAction:
		return w.named("action", name)
	case worldInput:
		return w.named("action.input", name)
	case worldOutput:
		return w.named("action.output", name)
	case worldPlanLabels:
		return w.named("plan.labels", name)
	case worldActionLabels:
		return w.named("action.labels", name)
	default:
		panic(fmt.Sprintf("triggers: no such world: %d", w.kind))
	}
}

// named reads root.name of the scope.
func (w *world) named(root, name string) (ref.Val, wait) {
	if _, whole := wholeWorld(root + "." + name); whole { // action["output"]
		value, _ := w.e.ResolveName(root + "." + name)
		return value.(ref.Val), wait{}
	}
	value := w.e.scope.value(root, name)
	if missing, ok := value.(*absent); ok {
		return nil, missing.wait
	}
	w.e.note(reading{kind: readName, name: root + "." + name, value: value.(ref.Val)})
	return value.(ref.Val), wait{}
}

// ConvertToNative, ConvertToType and Equal complete ref.Val; the inspector lets
// no expression get here.
func (w *world) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert what is read by name only")
}

// ConvertToType: see ConvertToNative.
func (w *world) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal: see ConvertToNative.
func (w *world) Equal(ref.Val) ref.Val { return types.NewErr("no such overload") }

// Type has the traits of the world and no other, so that what needs more is "no
// such overload".
func (w *world) Type() ref.Type { return w.e.language().worldType }

// Value returns the world itself.
func (w *world) Value() any { return w }

// object is a map that is walked in the order of its keys, so that no answer
// depends on the order of a Go map. JSON objects and map literals become objects.
type object struct {
	keys   []ref.Val // strings first, sorted; then others as they came, sorted by text
	values []ref.Val
}

// Find returns the value under key. Numbers are equal across their types.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	if types.IsUnknownOrError(key) {
		return key, false
	}
	if name, ok := key.(types.String); ok {
		i, found := slices.BinarySearchFunc(o.keys, string(name), func(k ref.Val, name string) int {
			if s, ok := k.(types.String); ok {
				return strings.Compare(string(s), name)
			}
			return 1
		})
		if !found {
			return nil, false
		}
		return o.values[i], true
	}
	for i, k := range o.keys {
		if equal(k, key) == types.True {
			return o.values[i], true
		}
	}
	return nil, false
}

// FindStringKey is the way of cel-go to Find without a conversion.
func (o *object) FindStringKey(name string) (any, bool) {
	return o.Find(types.String(name))
}

// Get returns the value under key, or an error that names it.
func (o *object) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	switch {
	case found:
		return value
	case value != nil:
		return value
	default:
		return types.NewErr("no such key: %v", key)
	}
}

// Contains answers `in`.
func (o *object) Contains(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

// Size is the number of keys.
func (o *object) Size() ref.Val { return types.Int(len(o.keys)) }

// Iterator walks the keys in their order.
func (o *object) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, o.keys).Iterator()
}

// ConvertToNative is not needed: cel-go does not see Go values from here.
func (o *object) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert a map to a Go value")
}

// ConvertToType converts to map and type only.
func (o *object) ConvertToType(kind ref.Type) ref.Val {
	switch kind {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from map to %s", kind.TypeName())
}

// Equal compares key by key.
func (o *object) Equal(other ref.Val) ref.Val {
	that, ok := other.(*object)
	if !ok || len(o.keys) != len(that.keys) {
		return types.False
	}
	for i, key := range o.keys {
		value, found := that.Find(key)
		if !found {
			return types.False
		}
		if equal(o.values[i], value) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type is map.
func (o *object) Type() ref.Type { return types.MapType }

// Value returns the object itself.
func (o *object) Value() any { return o }
