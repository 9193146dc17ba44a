package triggers

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
	"cel.dev/cel-go/parser"
)

// Facts by prefix. The macros facts.exists, facts.all and facts.count become a loop over what one
// of these functions gives, or a call of it. An absent fact is among them as little as in `in`:
// what is asked is what is known now.

// prefixFunction is one of them. No user can write its name.
type prefixFunction struct {
	name   string
	macro  string
	result *cel.Type
	reads  bool // it gives the values of the facts, too
}

var prefixFunctions = makePrefixFunctions()

func makePrefixFunctions() []prefixFunction {
	among := cel.MapType(cel.StringType, cel.DynType)
	return []prefixFunction{
		{"@exists", "exists", among, true}, {"@exists_keys", "exists", among, false},
		{"@all", "all", among, true}, {"@all_keys", "all", among, false},
		{"@count", "count", among, true}, {"@count_keys", "count", among, false},
		{anyFunction, "exists", cel.BoolType, false}, {"@size", "count", cel.IntType, false},
	}
}

const anyFunction = "@any"

// prefixFunctionOf finds one of them by name; nil: there is none of that name.
func prefixFunctionOf(name string) *prefixFunction {
	if name == "" || name[0] != '@' {
		return nil
	}
	for i := range prefixFunctions {
		if prefixFunctions[i].name == name {
			return &prefixFunctions[i]
		}
	}
	return nil
}

// watchedPrefix begins the name by which a prefix is watched: no key of a fact begins with it, as
// it is no UTF-8.
const watchedPrefix = "\xff"

// PrefixKey is what a condition over the facts of a prefix is listed by, beside the keys of others.
func PrefixKey(prefix string) string { return watchedPrefix + prefix }

// PrefixOf is the prefix that PrefixKey has made a key of.
func PrefixOf(key string) (prefix string, ok bool) { return strings.CutPrefix(key, watchedPrefix) }

// ShownKey is a key of Keys or Watched for a person who reads: that of a prefix ends with a star.
func ShownKey(key string) string {
	if prefix, ok := PrefixOf(key); ok {
		return prefix + "*"
	}
	return key
}

// IsWatched reports whether a fact is among keys as Watched lists them.
func IsWatched(keys []string, fact string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		prefix, ok := PrefixOf(key)
		return key == fact || ok && strings.HasPrefix(fact, prefix)
	})
}

func prefixMacros() (macros []cel.Macro) {
	for _, name := range []string{"exists", "count"} {
		call := anyFunction
		if name == "count" {
			call = "@size"
		}
		macros = append(macros, cel.ReceiverMacro(name, 1, func(f cel.MacroExprFactory, target ast.Expr,
			args []ast.Expr) (ast.Expr, *cel.Error) {
			if !isFacts(target) {
				return nil, nil
			}
			return f.NewCall(call, args[0]), nil
		}))
	}
	for _, name := range []string{"exists", "all", "count"} {
		macros = append(macros, cel.ReceiverMacro(name, 4, func(f cel.MacroExprFactory, target ast.Expr,
			args []ast.Expr) (ast.Expr, *cel.Error) {
			if !isFacts(target) {
				return nil, nil
			}
			return expandLoop(f, name, args)
		}))
	}
	return macros
}

// expandLoop makes a loop of facts.exists(prefix, k, v, condition) and the like.
func expandLoop(f cel.MacroExprFactory, name string, args []ast.Expr) (ast.Expr, *cel.Error) {
	for _, arg := range args[1:3] {
		if arg.Kind() != ast.IdentKind {
			return nil, f.NewError(arg.ID(), "facts."+name+" wants two names, as in facts."+name+
				"(\"job/\", k, v, v.failed)")
		}
	}
	key, value, test := args[1].AsIdent(), args[2].AsIdent(), args[3]
	if key == value {
		return nil, f.NewError(args[2].ID(), "facts."+name+" wants two names that differ")
	}
	call := "@" + name
	if !names(test, value) {
		call += "_keys"
	}
	among := f.NewCall(call, args[0])
	var init, goesOn, step ast.Expr
	switch name {
	case "exists":
		init, goesOn = f.NewLiteral(types.False),
			f.NewCall(operators.NotStrictlyFalse, f.NewCall(operators.LogicalNot, f.NewAccuIdent()))
		step = f.NewCall(operators.LogicalOr, f.NewAccuIdent(), test)
	case "all":
		init, goesOn = f.NewLiteral(types.True), f.NewCall(operators.NotStrictlyFalse, f.NewAccuIdent())
		step = f.NewCall(operators.LogicalAnd, f.NewAccuIdent(), test)
	default:
		init, goesOn = f.NewLiteral(types.IntZero), f.NewLiteral(types.True)
		step = f.NewCall(operators.Conditional, test,
			f.NewCall(operators.Add, f.NewAccuIdent(), f.NewLiteral(types.IntOne)), f.NewAccuIdent())
	}
	return f.NewComprehensionTwoVar(among, key, value, f.AccuIdentName(), init, goesOn, step,
		f.NewAccuIdent()), nil
}

// names reports whether an expression has a name in it.
func names(root ast.Expr, name string) (found bool) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && e.AsIdent() == name
	}))
	return found
}

// prefixed are the facts of one prefix, as a loop over them reads them: in the order of their keys.
type prefixed struct {
	e        *evaluation
	function *prefixFunction
	prefix   string
	facts    []readFact
	decides  int     // the fact at which the answer was known; -1: it is by none of them
	number   ref.Val // of what was counted
}

// never is the view of one who asks what no future changes: it has no fact, and may get any.
type never struct{ Nothing }

// among binds a function of a prefix to this evaluation.
func (e *evaluation) among(f *prefixFunction) functions.LateBoundOp {
	return func(_ string, args ...ref.Val) ref.Val {
		u := &prefixed{e: e, function: f, prefix: text(args[0]), decides: -1}
		if u.prefix == "" || len(u.prefix) > keyMax {
			return types.NewErr("a prefix of %d bytes, not of 1 to %d", len(u.prefix), keyMax)
		}
		if e.open {
			return e.unknown(wait{kind: waitText, name: "facts " + u.prefix + "*"})
		}
		if !e.touch(PrefixKey(u.prefix)) || !u.gather() {
			return types.NewErr("operation cancelled")
		}
		if e.full {
			e.prefixes = append(e.prefixes, u)
		}
		switch f.result {
		case cel.IntType:
			u.number = types.Int(len(u.facts))
			return u.number
		case cel.BoolType:
			u.decides = len(u.facts) - 1
			return types.Bool(len(u.facts) > 0)
		}
		return u
	}
}

// gather reads which facts there are, as many as the evaluation may.
func (u *prefixed) gather() bool {
	e := u.e
	defer e.keep()
	for key, fact := range e.view.Under(u.prefix) {
		if len(e.facts)+len(e.keys)+e.walked >= readMax {
			e.stop("it reads more than %d facts", readMax)
			return false
		}
		e.walked++
		u.facts = append(u.facts, readFact{Fact: fact, key: key})
		if u.function.name == anyFunction {
			break
		}
	}
	return true
}

// Fold implements traits.Foldable.
func (u *prefixed) Fold(folder traits.Folder) {
	asked := 0
	for ; asked < len(u.facts); asked++ {
		var value ref.Val = types.NullValue
		if u.function.reads {
			value = u.e.value(&u.facts[asked])
		}
		if !folder.FoldEntry(types.String(u.facts[asked].key), value) {
			break
		}
	}
	loop, ok := folder.(interpreter.Activation)
	if !ok || !u.e.full {
		return
	}
	answer, _ := loop.ResolveName(parser.HiddenAccumulatorName)
	switch v := answer.(type) {
	case types.Bool:
		if bool(v) == (u.function.macro == "exists") {
			u.decides = asked - 1
		}
	case types.Int:
		u.number = v
	}
}

// tell notes what was found, for the record of a firing: the fact that decided, or how many.
func (u *prefixed) tell() {
	r := reading{kind: readCall, name: "facts." + u.function.macro, key: u.prefix, value: u.number}
	if u.decides >= 0 {
		f := u.facts[u.decides]
		r.value = types.String(f.key)
		if !slices.ContainsFunc(u.e.facts, func(had readFact) bool { return had.key == f.key }) {
			u.e.facts = append(u.e.facts, f)
		}
	}
	u.e.note(r)
}

// factsRead are the facts that were read: of the keys that an answer is watched by, and by prefix.
func (e *evaluation) factsRead(watched []string) []string {
	if !slices.ContainsFunc(watched, isPrefix) {
		return watched
	}
	keys := slices.DeleteFunc(slices.Clone(watched), isPrefix)
	for _, u := range e.prefixes {
		for i := range u.facts {
			keys = append(keys, u.facts[i].key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func isPrefix(key string) bool { return key[:min(1, len(key))] == watchedPrefix }

// ConvertToNative, ConvertToType and Equal complete ref.Val: no expression gets here.
func (u *prefixed) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert the facts of a prefix")
}

// ConvertToType: see ConvertToNative.
func (u *prefixed) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal: see ConvertToNative.
func (u *prefixed) Equal(ref.Val) ref.Val { return types.NewErr("no such overload") }

// Type is that of what is read by name only.
func (u *prefixed) Type() ref.Type { return u.e.language().worldType }

// Value returns the facts themselves.
func (u *prefixed) Value() any { return u }
