package triggers

import (
	"fmt"
	"slices"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// shape is what conditions that differ only in literals have in common: one
// program. It does not change once made and may be shared, but for what the cache
// notes in it.
type shape struct {
	program   cel.Program
	language  *language
	roots     map[string]bool // the variables it reads
	slots     []slot          // what it reads of the scope, a name each
	params    []param         // literals of the text
	keys      []string        // fact keys that are in it and are no parameters
	keyParams []int           // parameters that are fact keys
	computed  bool            // it reads keys that only an evaluation knows
	whole     bool            // it asks the scope for more than names, as in action.?output.ref
	arming    bool            // it asks what occurred since arming
	skeleton  *clause         // nil: no future makes it moot
	leafCount int
	extent    extent
	joined    *joined // nil: it is not joined of others
	alone     *lonely // of a term: what it is as a leaf

	// What follows belongs to the goroutine of the cache.
	home   *home
	terms  []*shape // that it needs: see joined
	weight int      // bytes, about, without them
	pins   int      // of the cache
	used   bool     // by a Kept, since the cache looked last
}

// home is where what is kept beside the cache finds a shape.
type home struct {
	shape *shape // nil: the cache has let it go
}

// What a shape takes, as TestAShapeWeighsWhatItTakes measures it: an expression, and
// each node of it.
const (
	shapeBytes     = 1000
	shapeNodeBytes = 200
	regexNodeBytes = 2500
)

// param is a literal of a shape's texts.
type param struct {
	literal int // its index among those of the text
	// duration(...) and timestamp(...) are taken with their argument; nil: as it is
	convert func(ref.Val) ref.Val
	check   func(value ref.Val) bool // whether a condition may say so; nil: always
	prefix  bool                     // of keys of facts
}

// slot is a name of the scope.
type slot struct {
	path        string
	root, field string // field is empty for a variable
	common      bool   // many plans have the same value
}

// The names that the compiler puts where a literal or a path stood.
const (
	paramName = "@p"
	slotName  = "@s"
)

// shaper turns a checked condition into its shape, in place.
type shaper struct {
	shape    *shape
	checked  *ast.AST
	factory  ast.ExprFactory
	literals []literal
	taken    []bool
	failed   bool // a literal is not where a parameter could be
}

// newShape compiles expression. literals are those of lift; the shape takes them
// as parameters, or none of them: then it is the shape of this text only.
func (l *language) newShape(expression string, literals []literal) (*shape, error) {
	return l.makeShape(expression, literals, nil)
}

// makeShape is newShape, and that of a term where as says so.
func (l *language) makeShape(expression string, literals []literal, as *termOf) (*shape, error) {
	checked, err := l.check(l.conditions, expression, inspectCondition)
	if err != nil {
		return nil, err
	}
	if kind := checked.OutputType().Kind(); kind != cel.BoolKind && kind != cel.DynKind {
		return nil, &Error{Line: 1, Column: 1, Message: "the result is " + checked.OutputType().String() +
			", not a truth",
			Hint: "compare it with something, as in plan.status == \"failed\""}
	}
	tree := checked.NativeRep()
	s := &shape{language: l}
	roots, keys, computed := footprint(tree.Expr())
	s.roots, s.keys, s.computed = roots, keys, computed
	s.skeleton, s.leafCount = newSkeleton(tree)
	s.extent = extentOf(tree.Expr())
	mixed := mixedCalls(tree)
	loops := comparesMuch(tree.Expr())
	if as != nil {
		if s.alone, err = as.leafOf(checked, s.extent); err != nil {
			return nil, err
		}
		s.skeleton, s.leafCount, loops = nil, 0, as.weighed
	}
	b := &shaper{shape: s, checked: tree, factory: ast.NewExprFactory(), literals: literals,
		taken: make([]bool, len(literals))}
	if len(literals) > 0 {
		b.find(tree.Expr(), nil)
		if b.failed || slices.Contains(b.taken, false) {
			b.literals = nil
		}
	}
	b.lower(tree.Expr())
	if s.program, err = l.plan(l.conditions.env, tree,
		planning{skeleton: s.skeleton, mixed: mixed, loops: loops, costly: s.extent.costly}); err != nil {
		return nil, planError(err)
	}
	s.home = &home{s}
	s.weight = shapeBytes + len(expression) + shapeNodeBytes*s.extent.nodes
	s.weight += regexNodeBytes * s.extent.patterns
	return s, nil
}

// literalAt returns the index of the literal that e is, or -1.
func (b *shaper) literalAt(e ast.Expr) int {
	if e.Kind() != ast.LiteralKind {
		return -1
	}
	at, ok := b.checked.SourceInfo().GetOffsetRange(e.ID())
	if !ok {
		return -1
	}
	i, found := slices.BinarySearchFunc(b.literals, int(at.Start), func(l literal, at int) int {
		return l.at - at
	})
	if !found {
		return -1
	}
	l, value := b.literals[i], e.AsLiteral()
	if l.value.Type() != value.Type() || l.value.Equal(value) != types.True {
		return -1
	}
	return i
}

// find checks that every literal is where a parameter may be, before anything is
// changed.
func (b *shaper) find(e, parent ast.Expr) {
	if i := b.literalAt(e); i >= 0 {
		b.failed = b.failed || b.taken[i] || parent != nil && parent.Kind() == ast.CallKind &&
			isIndex(parent.AsCall().FunctionName()) && isAction(parent.AsCall().Args()[0])
		b.taken[i] = true
	}
	if e.Kind() == ast.CallKind {
		if key := keyArgument(e.AsCall()); key >= 0 {
			arg := e.AsCall().Args()[key]
			_, constant := constantText(arg)
			b.failed = b.failed || constant && arg.Kind() != ast.LiteralKind
		}
	}
	for _, part := range partsOf(e) {
		b.find(part, e)
	}
}

// partsOf lists the expressions that e is made of.
func partsOf(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			return append([]ast.Expr{e.AsCall().Target()}, e.AsCall().Args()...)
		}
		return e.AsCall().Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return parts
	case ast.ComprehensionKind:
		fold := e.AsComprehension()
		return []ast.Expr{fold.IterRange(), fold.AccuInit(), fold.LoopCondition(), fold.LoopStep(),
			fold.Result()}
	case ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
		return nil
	default:
		panic(fmt.Sprintf("triggers: no such kind of expression: %d", e.Kind()))
	}
}

// lower puts slots where paths of the scope are and parameters where literals are.
func (b *shaper) lower(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		b.ident(e)
		return
	case ast.SelectKind:
		if operand := e.AsSelect().Operand(); operand.Kind() == ast.IdentKind {
			if _, open := wholeWorld(operand.AsIdent()); open {
				b.slot(e, operand.AsIdent(), e.AsSelect().FieldName())
				return
			}
		}
	case ast.CallKind:
		b.call(e)
	case ast.LiteralKind:
		if i := b.literalAt(e); i >= 0 {
			b.param(e, param{literal: i})
		}
		return
	}
	for _, part := range partsOf(e) {
		b.lower(part)
	}
}

func (b *shaper) ident(e ast.Expr) {
	name := e.AsIdent()
	if _, open := wholeWorld(name); open {
		b.shape.whole = true
		return
	}
	switch {
	case name == "facts":
	case slices.ContainsFunc(variables, func(v variable) bool { return v.name == name }):
		b.slot(e, name, "")
	}
}

// call takes a literal with the call that converts it, and notes what a literal at
// its place must be.
func (b *shaper) call(e ast.Expr) {
	call := e.AsCall()
	name, args := call.FunctionName(), call.Args()
	switch name {
	case "seen", "first_at", "last_at":
		b.shape.arming = true
	}
	if key := keyArgument(call); key >= 0 {
		if i := b.literalAt(args[key]); i >= 0 {
			b.key(args[key], i, !isIndex(name) && name != operators.In, prefixFunctionOf(name) != nil)
		}
	}
	f := timeFunctionOf(name)
	if f == nil {
		f = new(timeFunction)
	}
	if f.most > 0 {
		if i := b.literalAt(args[0]); i >= 0 {
			b.param(args[0], param{literal: i, check: func(v ref.Val) bool {
				return v.(types.Int) >= 1 &&
					v.(types.Int) <= types.Int(f.most)
			}})
		}
	}
	for n, arg := range args {
		if convert := b.conversion(arg); convert != nil {
			p := param{literal: b.literalAt(arg.AsCall().Args()[0]), convert: convert, check: isValue}
			if f.positive && n == len(args)-1 {
				p.check = func(v ref.Val) bool { d, ok := v.(types.Duration); return ok && d.Duration > 0 }
			}
			b.param(arg, p)
		}
	}
	if convert := b.conversion(e); convert != nil {
		b.param(e, param{literal: b.literalAt(args[0]), convert: convert, check: isValue})
	}
}

func isValue(v ref.Val) bool { return !types.IsUnknownOrError(v) }

// conversion returns what duration("...") and the like do to their literal: cel-go
// does it once, when it plans, and refuses what cannot be converted.
func (b *shaper) conversion(e ast.Expr) func(ref.Val) ref.Val {
	if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() || len(e.AsCall().Args()) != 1 ||
		b.literalAt(e.AsCall().Args()[0]) < 0 {
		return nil
	}
	var to ref.Type
	switch e.AsCall().FunctionName() {
	case "duration":
		to = types.DurationType
	case "timestamp":
		to = types.TimestampType
	case "int":
		to = types.IntType
	case "uint":
		to = types.UintType
	case "double":
		to = types.DoubleType
	case "bool":
		to = types.BoolType
	case "bytes":
		to = types.BytesType
	case "string":
		if b.literals[b.literalAt(e.AsCall().Args()[0])].kind == doubleLiteral {
			return nil // its text is a matter of the evaluation
		}
		to = types.StringType
	default:
		return nil
	}
	return func(v ref.Val) ref.Val { return v.ConvertToType(to) }
}

// key makes a literal that is a fact key, or a prefix of some, a parameter.
func (b *shaper) key(e ast.Expr, i int, bounded, prefix bool) {
	text := string(e.AsLiteral().(types.String))
	if prefix {
		text = PrefixKey(text)
	}
	if at := slices.Index(b.shape.keys, text); at >= 0 {
		b.shape.keys = slices.Delete(b.shape.keys, at, at+1)
	}
	b.shape.keyParams = append(b.shape.keyParams, len(b.shape.params))
	p := param{literal: i, prefix: prefix}
	if bounded {
		p.check = func(v ref.Val) bool { s := v.(types.String); return s != "" && len(s) <= keyMax }
	}
	b.param(e, p)
}

func (b *shaper) param(e ast.Expr, p param) {
	b.replace(e, paramName+strconv.Itoa(len(b.shape.params)))
	b.shape.params = append(b.shape.params, p)
}

func (b *shaper) slot(e ast.Expr, root, field string) {
	path := root
	if field != "" {
		path += "." + field
	}
	i := slices.IndexFunc(b.shape.slots, func(s slot) bool { return s.path == path })
	if i < 0 {
		i = len(b.shape.slots)
		b.shape.slots = append(b.shape.slots,
			slot{path: path, root: root, field: field, common: isCommon(root)})
	}
	b.replace(e, slotName+strconv.Itoa(i))
}

// isCommon reports whether many actions have the same value of a variable, so that
// their conditions may be one node.
func isCommon(root string) bool {
	switch root {
	case "plan.label", "plan.owner", "plan.agent", "plan.labels", "action.capability":
		return true
	}
	return false
}

func (b *shaper) replace(e ast.Expr, name string) {
	e.SetKindCase(b.factory.NewIdent(e.ID(), name))
	b.checked.SetReference(e.ID(), ast.NewIdentReference(name, nil))
}

// extent is how far an evaluation goes.
type extent struct {
	nodes  int  // of the checked expression
	costly bool // it may take more steps than it has nodes
	closed bool // it asks what is known now
	member bool // it asks what is among the facts, or in a list

	patterns int // regular expressions
}

func extentOf(root ast.Expr) extent {
	x := extent{costly: mayCost(root)}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		x.nodes++
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case hasFunction, operators.OptIndex, operators.OptSelect:
				x.closed = true
			case operators.In:
				x.member = true
			case "matches":
				x.patterns++
			}
		}
	}))
	return x
}
