package triggers

import (
	"errors"
	"maps"
	"math/bits"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// A joined shape is made of the shapes of its terms, each of which is compiled once for
// all conditions that have such a term. It answers in every respect as the whole text
// does when it is compiled in one piece; what could not is compiled in one piece.
// TestAShapeIsNoOtherLanguage and FuzzShapes hold the two against each other.

// joined is how a shape is made of others.
type joined struct {
	root  *joint
	terms []term
}

// term is a term of a joined shape.
type term struct {
	shape  *shape
	params int   // where its parameters begin among those of all
	slots  []int // its slots among those of all
}

// lonely is what a term is as a leaf of the skeleton of a condition.
type lonely struct {
	falls         fallacy
	useful, blind bool
	comparisons   int
	nodes, depth  int // as it was parsed
}

// termOf says that an expression is compiled as a term.
type termOf struct{ weighed bool } // what it compares is to be weighed

// errWhole says that a text is to be compiled in one piece.
var errWhole = errors.New("no term")

// leafOf is what a checked expression is as a leaf, or errWhole.
func (t *termOf) leafOf(checked *checkedText, x extent) (*lonely, error) {
	e := checked.NativeRep().Expr()
	if e.Kind() == ast.CallKind {
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
			return nil, errWhole
		}
	}
	if x.costly {
		return nil, errWhole
	}
	l := leafClause(e, 0)
	return &lonely{
		falls: l.falls, useful: l.useful(e), blind: l.blind, comparisons: comparisonsOf(e),
		nodes: checked.nodes, depth: checked.depth,
	}, nil
}

// join makes the shape of a text of many terms, or returns nil: then it is to be
// compiled whole.
func (c *Cache) join(text string, literals []literal) *shape {
	if !plain(text) {
		return nil
	}
	parts := split(text)
	if parts == nil {
		return nil
	}
	s := &shape{language: c.language, program: c.language.joiner, roots: map[string]bool{}}
	s.joined = &joined{root: parts.root, terms: make([]term, len(parts.terms))}
	as := &termOf{weighed: parts.comparisons > comparisonsMax}
	taken := 0
	for i, p := range parts.terms {
		key, own := lift(text[p.from:p.to])
		for _, l := range own {
			if taken == len(literals) || literals[taken].at != p.from+l.at {
				return nil
			}
			taken++
		}
		t := c.term(key, text[p.from:p.to], own, as)
		if t == nil {
			return nil
		}
		s.joined.terms[i] = s.add(t, taken-len(own))
	}
	if taken != len(literals) || !s.finish(parts, as) {
		return nil
	}
	return s
}

// term finds or makes the shape of a term, or returns nil.
func (c *Cache) term(key, text string, literals []literal, as *termOf) *shape {
	mark := "\x00"
	if as.weighed {
		mark = "\x01"
	}
	key = mark + key
	if v := c.shapes.look(key); v != nil {
		return v.shape
	}
	c.compilations++
	s, err := c.language.makeShape(text, literals, as)
	if err != nil || len(s.params) != len(literals) {
		return nil
	}
	c.shapes.put(&volume[shape]{text: key, weight: len(key), shape: s})
	return s
}

// add takes a term into a shape; literal is where its literals begin.
func (s *shape) add(t *shape, literal int) term {
	added := term{shape: t, params: len(s.params), slots: make([]int, len(t.slots))}
	for _, p := range t.params {
		s.params = append(s.params, param{p.literal + literal, p.convert, p.check, p.prefix})
	}
	for _, i := range t.keyParams {
		s.keyParams = append(s.keyParams, added.params+i)
	}
	for i, own := range t.slots {
		at := slices.IndexFunc(s.slots, func(had slot) bool { return had.path == own.path })
		if at < 0 {
			at = len(s.slots)
			s.slots = append(s.slots, own)
		}
		added.slots[i] = at
	}
	maps.Copy(s.roots, t.roots)
	s.keys = append(s.keys, t.keys...)
	s.computed, s.whole = s.computed || t.computed, s.whole || t.whole
	s.arming = s.arming || t.arming
	s.extent.nodes += t.extent.nodes
	s.extent.closed = s.extent.closed || t.extent.closed
	s.extent.member = s.extent.member || t.extent.member
	s.terms = append(s.terms, t)
	return added
}

// What a joined shape takes, in bytes: itself, each term and each parameter.
const (
	joinedBytes = 700
	termBytes   = 250
	paramBytes  = 50
)

// finish completes a joined shape, and reports whether the text may be one.
func (s *shape) finish(parts *splitter, as *termOf) bool {
	nodes, comparisons, useful := parts.joints, 0, false
	for _, t := range s.terms {
		nodes += t.alone.nodes
		comparisons += t.alone.comparisons
		useful = useful || t.alone.useful
	}
	weighed := comparisons > comparisonsMax
	if nodes > nodesMax || s.depth(parts.root) >= depthMax || weighed != as.weighed {
		return false
	}
	if useful {
		s.skeleton, s.leafCount = s.clause(parts.root), len(s.terms)
	}
	slices.Sort(s.keys)
	s.keys = slices.Compact(s.keys)
	s.extent.nodes += parts.joints
	s.home = &home{s}
	s.weight = joinedBytes + termBytes*len(s.terms) + paramBytes*len(s.params)
	return true
}

// depth is how deep a joint is at most, as cel-go balances chains.
func (s *shape) depth(j *joint) int {
	if j.operator == "" {
		return s.terms[j.term].alone.depth
	}
	deepest := 0
	for _, part := range j.parts {
		deepest = max(deepest, s.depth(part))
	}
	return deepest + max(bits.Len(uint(len(j.parts)-1)), 1)
}

// clause is a joint as a part of the skeleton.
func (s *shape) clause(j *joint) *clause {
	if j.operator == "" {
		alone := s.terms[j.term].alone
		return &clause{leaf: j.term, falls: alone.falls, blind: alone.blind}
	}
	c := &clause{operator: j.operator}
	for _, part := range j.parts {
		c.parts = append(c.parts, s.clause(part))
	}
	return c
}

// joining is the program of every joined shape: it asks the terms of the one that is
// evaluated.
type joining struct{ interpreter.InterpretableV2 }

func newJoiner(env *cel.Env) cel.Program {
	tree, issues := env.Compile("true")
	if issues.Err() != nil {
		panic("triggers: cannot make the language: " + issues.Err().Error())
	}
	program, err := env.Program(tree, cel.CustomDecoratorV2(
		func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			return &joining{i}, nil
		}))
	if err != nil {
		panic("triggers: cannot make the language: " + err.Error())
	}
	return program
}

// Exec evaluates the joined shape.
func (j *joining) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	e := frame.Scope().(*evaluation)
	return e.joint(frame, e.held.shape.joined.root)
}

// Eval evaluates it outside a frame.
func (j *joining) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, j.Exec)
}

// joint answers a joint as cel-go answers && and ||: the first part that decides does;
// else an unknown is stronger than an error.
func (e *evaluation) joint(frame *interpreter.ExecutionFrame, j *joint) ref.Val {
	decides := types.Bool(j.operator == operators.LogicalOr)
	switch j.operator {
	case "":
		return e.askTerm(frame, j.term)
	case operators.LogicalNot:
		value := e.joint(frame, j.parts[0])
		if truth, ok := value.(types.Bool); ok {
			return !truth
		}
		return types.MaybeNoSuchOverloadErr(value)
	}
	var failed ref.Val
	var unknown *types.Unknown
	for _, part := range j.parts {
		switch value := e.joint(frame, part).(type) {
		case types.Bool:
			if value == decides {
				return value
			}
		case *types.Unknown:
			if unknown == nil || e.full { // no one asks the others what they wait for
				unknown = types.MergeUnknowns(unknown, value)
			}
		default:
			if failed == nil {
				failed = types.MaybeNoSuchOverloadErr(value)
			}
		}
	}
	switch {
	case unknown != nil:
		return unknown
	case failed != nil:
		return failed
	}
	return !decides
}

// askTerm evaluates a term within the evaluation of the whole.
func (e *evaluation) askTerm(frame *interpreter.ExecutionFrame, i int) ref.Val {
	s := e.held.shape
	t := &s.joined.terms[i]
	watched := s.leafCount > 0 && !t.shape.alone.blind
	if watched {
		e.leaf = i
	}
	e.term = t
	value, _, err := t.shape.program.Eval(frame)
	if e.term = nil; value == nil {
		panic(err) // what was to stop the whole
	}
	if watched {
		e.answered(i, value)
	}
	return value
}
