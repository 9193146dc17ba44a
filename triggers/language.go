package triggers

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// language holds what all expressions share. It does not change once made.
type language struct {
	conditions dialect
	arguments  dialect
	readers    dialect
	joiner     cel.Program      // of all joined shapes
	worldType  *types.Type      // of what is read by name only
	unknowns   []*types.Unknown // unknowns[i] names the wait i, made once
}

// Limits on an expression, so that no text can cost a turn: what exceeds the
// first five is refused at registration; what exceeds costMax, or one of the
// four after keyMax, or makes a text of more than outputMax, stops and waits.
// textMax, keyMax and outputMax are limits of the record format as well: a test
// compares them with package ledger, which this one does not import.
const (
	textMax  = 4 << 10      // bytes, checked before the parser sees them
	parseMax = 48           // nesting that the parser follows
	depthMax = 32           // nesting of the parsed expression
	nodesMax = 1000         // nodes after the macros are expanded
	regexMax = 250          // instructions of a compiled regular expression
	costMax  = 10_000       // steps of one evaluation, as cel-go counts them
	keyMax   = 256          // bytes of a fact key
	readMax  = 512          // facts that one evaluation reads, or asks the times of
	bytesMax = 1 << 20      // bytes of their values
	countMax = 10_000       // occurrences that at_least() and count() look at
	timesMax = 2 * countMax // occurrences that one evaluation looks at
	// instructions times bytes of text that regular expressions of one evaluation run over
	scanMax   = 1 << 19
	outputMax = 64 << 10 // bytes of the value of a binding
	latestMax = 256      // occurrences that latest lists
	jsonMax   = 256      // nesting of a JSON value that an expression reads
)

// dialect is what one kind of expression may read, and how its refusals help.
type dialect struct {
	env     *cel.Env
	quick   quickParser
	names   []string // that a misspelt one may have meant
	reads   string   // hint to a name that none of them is near to
	example string   // hint to an empty text
	split   string   // hint to a text that is too large
}

// Names that no user can write: '@' is no letter of an identifier.
const (
	hasFunction    = "@has"     // has(path): is it known now?
	orNullFunction = "@or_null" // the value of a path in a binding, or null
	outputFunction = "@output"  // the same for a path below output
)

// variable is one name of the language and its type.
type variable struct {
	name string
	kind *cel.Type
}

// variables are what a condition may read. Names with a dot are variables of their
// own, so that the checker knows their type and refuses a misspelt one.
var variables = makeVariables()

func makeVariables() []variable {
	open := cel.MapType(cel.StringType, cel.DynType)
	return []variable{
		{"facts", open},
		{"action", open}, {"action.id", cel.StringType}, {"action.capability",
			cel.StringType}, {"action.at", cel.TimestampType},
		{"action.outcome", cel.StringType}, {"action.presence", cel.StringType}, {"action.input",
			open}, {"action.output", open}, {"action.labels", open},
		{"plan.id", cel.StringType}, {"plan.status", cel.StringType}, {"plan.label",
			cel.StringType}, {"plan.owner", cel.StringType},
		{"plan.agent", cel.StringType}, {"plan.opened_at", cel.TimestampType}, {"plan.active_at",
			cel.TimestampType}, {"plan.deadline", cel.TimestampType},
		{"plan.labels", open}, {"plan.actions", cel.IntType}, {"plan.step", cel.IntType},
		{"verdict.outcome", cel.StringType}, {"verdict.reason", cel.StringType}, {"verdict.by",
			cel.StringType}, {"verdict.at", cel.TimestampType},
	}
}

// isVariable reports whether name is one of the language, not of a loop.
func isVariable(name string) bool {
	root, _, _ := strings.Cut(name, ".")
	switch root {
	case "facts", "action", "plan", "verdict":
		return true
	}
	return false
}

// newLanguage builds the environments. It panics if cel-go refuses them,
// which no input can cause.
func newLanguage() *language {
	l := &language{worldType: cel.ObjectType("scope", traits.ContainerType, traits.IndexerType,
		traits.FieldTesterType)}
	for i := range int64(32) {
		l.unknowns = append(l.unknowns, types.NewUnknown(i, nil))
	}
	options := sharedOptions()
	for _, v := range variables {
		options = append(options, cel.Variable(v.name, v.kind))
	}
	for _, f := range timeFunctions {
		options = append(options,
			cel.Function(f.name, cel.Overload(f.name, f.args, f.result, cel.LateFunctionBinding())))
	}
	for _, f := range prefixFunctions {
		options = append(options, cel.Function(f.name, cel.Overload(f.name, []*cel.Type{cel.StringType},
			f.result, cel.LateFunctionBinding())))
	}
	options = append(options, cel.Macros(prefixMacros()...))
	env := newEnvironment(options)
	l.conditions = dialect{env: env, quick: newQuickParser(env), names: candidates(),
		example: "write a condition, as in plan.status == \"failed\"", split: "split it into several " +
			"triggers: any of them fires"}
	l.joiner = newJoiner(env)
	l.arguments = newBindingDialect(bindingVariables[:argumentVariables])
	l.readers = newBindingDialect(bindingVariables[:])
	return l
}

func newEnvironment(options []cel.EnvOption) *cel.Env {
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic("triggers: cannot make the language: " + err.Error())
	}
	return env
}

func sharedOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.OptionalTypes(),
		cel.StrictTimestampParsing(true),
		cel.DefaultUTCTimeZone(true),
		cel.EnableHiddenAccumulatorName(true),
		cel.ParserExpressionSizeLimit(textMax),
		cel.ParserRecursionLimit(parseMax),
		cel.ParserErrorRecoveryLimit(1),
		cel.ExpressionNodeLimit(nodesMax),
		cel.RegexProgramSizeLimit(regexMax),
		cel.Macros(cel.GlobalMacro("has", 1, expandHas)),
		cel.Function(hasFunction, cel.Overload(hasFunction, []*cel.Type{cel.DynType}, cel.BoolType,
			cel.OverloadIsNonStrict(), cel.UnaryBinding(isKnown))),
	}
}

// expandHas makes has(path) a question about now: false as soon as anything on
// the path is absent, where the macro of CEL would be unknown or an error.
func expandHas(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	path := args[0]
	if path.Kind() == ast.SelectKind || path.Kind() == ast.CallKind &&
		isIndex(path.AsCall().FunctionName()) {
		return f.NewCall(hasFunction, path), nil
	}
	return nil, f.NewError(path.ID(), "has() wants a path, as in has(action.output.ref)")
}

func isKnown(value ref.Val) ref.Val {
	switch v := value.(type) {
	case *types.Unknown, *types.Err:
		return types.False
	case *types.Optional:
		return types.Bool(v.HasValue())
	default:
		return types.True
	}
}

// checkedText is an expression that is parsed, inspected and type-checked.
type checkedText struct {
	*cel.Ast
	nodes, depth int // as it was parsed
}

// check parses, inspects and type-checks expression within the limits.
func (l *language) check(
	d dialect, expression string, inspect func(*ast.AST) *Error,
) (*checkedText, error) {
	switch {
	case len(expression) > textMax:
		return nil, &Error{Line: 1, Column: 1, Message: fmt.Sprintf("%d bytes", len(expression)),
			Hint: fmt.Sprintf("at most %d", textMax)}
	case !utf8.ValidString(expression):
		return nil, &Error{Line: 1, Column: 1, Message: "not UTF-8"}
	case strings.TrimSpace(expression) == "":
		return nil, &Error{Line: 1, Column: 1, Message: "empty", Hint: d.example}
	}
	if parsed := d.quick.parse(expression); parsed != nil {
		if checked, err := l.checkParsed(d, expression, parsed, inspect); err == nil {
			return checked, nil
		}
		// What is wrong is for the other parser to say, which knows where.
	}
	parsed, issues := d.env.Parse(expression)
	if len(issues.Errors()) > 0 { // Err writes all of them out, each with its line
		return nil, issueError(issues, d, expression, briefParse)
	}
	return l.checkParsed(d, expression, parsed, inspect)
}

func (l *language) checkParsed(
	d dialect, expression string, parsed *cel.Ast, inspect func(*ast.AST) *Error,
) (*checkedText, error) {
	if ast.ExceedsDepth(parsed.NativeRep(), depthMax) {
		return nil, &Error{Line: 1, Column: 1, Message: fmt.Sprintf("nested deeper than %d", depthMax),
			Hint: d.split}
	}
	if err := inspect(parsed.NativeRep()); err != nil {
		return nil, err
	}
	if err := d.strange(parsed.NativeRep()); err != nil {
		return nil, err
	}
	list, err := constantsOf(parsed.NativeRep())
	if err != nil {
		return nil, err
	}
	c := &checkedText{}
	c.depth = c.measure(parsed.NativeRep().Expr())
	var issues *cel.Issues
	if c.Ast, issues = d.env.Check(parsed); len(issues.Errors()) > 0 {
		return nil, issueError(issues, d, expression, briefCheck)
	}
	if err := validate(c.Ast, list); err != nil {
		return nil, err
	}
	return c, nil
}

// measure counts the nodes of an expression, and returns how deep it is.
func (c *checkedText) measure(e ast.Expr) (depth int) {
	c.nodes++
	for _, part := range partsOf(e) {
		depth = max(depth, c.measure(part))
	}
	return depth + 1
}

// planning is what the program of an expression must be told about it: what holds
// of the text, before paths and literals were replaced.
type planning struct {
	skeleton *clause        // nil: none
	mixed    map[int64]bool // of mixedCalls
	loops    bool
	costly   bool // it can take more steps than it has nodes
}

// plan prepares a checked expression. Its leaves report to the evaluation when
// it has a skeleton; its cost is counted when it could be more than its length.
func (l *language) plan(env *cel.Env, checked *ast.AST, p planning) (cel.Program, error) {
	leaves := map[int64]*clause{}
	p.skeleton.leaves(func(c *clause) {
		if !c.blind {
			leaves[c.id] = c
		}
	})
	options := []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			i = replace(i, p.mixed, p.loops)
			if leaf := leaves[i.ID()]; leaf != nil {
				i = &leafWatch{InterpretableV2: i, leaf: leaf.leaf}
			}
			return i, nil
		}),
	}
	if p.costly {
		options = append(options, cel.CostLimit(costMax))
	}
	return env.PlanProgram(checked, options...)
}

// replace puts our own node where cel-go's would not be deterministic, bounded or
// kind to JSON numbers.
func replace(i interpreter.InterpretableV2, mixed map[int64]bool,
	loops bool) interpreter.InterpretableV2 {
	switch node := i.(type) {
	case interpreter.InterpretableConstructor:
		if node.Type() == types.MapType {
			return &mapLiteral{node}
		}
	case interpreter.InterpretableCall:
		promotes, isMixed := mixed[i.ID()]
		switch node.Function() {
		case operators.Equals, operators.NotEquals:
			if loops || isMixed {
				return &comparison{node, loops}
			}
		case operators.In:
			if isMixed { // cel-go's set of constants has no numbers
				return &hidden{&comparison{node, loops}}
			}
			if loops {
				return &comparison{node, loops}
			}
		case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			if isMixed {
				return &ordering{node}
			}
		case "matches":
			return newMatching(node)
		case operators.Negate:
			if _, constant := node.Args()[0].(interpreter.InterpretableConst); !constant {
				return &negation{node}
			}
		case "string", "double", "timestamp", jsonFunction:
			if len(node.Args()) == 1 {
				return newConversion(node)
			}
		default:
			if isMixed {
				return &arithmetic{node, promotes}
			}
		}
	}
	return i
}

func hasLoop(root ast.Expr) bool {
	found := false
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.ComprehensionKind
	}))
	return found
}

// comparisonsMax is how many comparisons are too few to weigh what they compare.
const comparisonsMax = 8

// comparesMuch reports whether what is compared must be weighed.
func comparesMuch(root ast.Expr) bool {
	return comparisonsOf(root) > comparisonsMax || hasLoop(root)
}

func comparisonsOf(root ast.Expr) (comparisons int) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case operators.Equals, operators.NotEquals, operators.In:
				comparisons++
			}
		}
	}))
	return comparisons
}

// mayCost reports whether an evaluation can take more steps than the expression
// has nodes, each bounded by the size of one fact: loops, and what scans text.
func mayCost(root ast.Expr) bool {
	found := hasLoop(root)
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case "matches", "contains", "startsWith", "endsWith", "bytes", "string":
				found = true
			}
		}
	}))
	return found
}

// clockRoot is among the roots for the clock, which no variable names, and prefixRoot for facts
// that are asked for by a prefix.
const (
	clockRoot  = "@clock"
	prefixRoot = "@prefix"
)

// footprint returns the roots of the variables that the expression reads, the
// fact keys that are in it, and whether it computes others.
func footprint(root ast.Expr) (roots map[string]bool, keys []string, computed bool) {
	roots = map[string]bool{}
	seen := map[string]bool{}
	add := func(key ast.Expr, prefix bool) {
		if text, ok := constantText(key); ok {
			if prefix {
				text = PrefixKey(text)
			}
			if !seen[text] {
				seen[text] = true
				keys = append(keys, strings.Clone(text))
			}
			return
		}
		computed = true
	}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			name, _, _ := strings.Cut(e.AsIdent(), ".")
			roots[name] = true
		case ast.SelectKind:
			if isFacts(e.AsSelect().Operand()) {
				add(literalText(e.AsSelect().FieldName()), false)
			}
		case ast.CallKind:
			call := e.AsCall()
			if i := keyArgument(call); i >= 0 {
				prefix := prefixFunctionOf(call.FunctionName()) != nil
				add(call.Args()[i], prefix)
				if prefix {
					roots["facts"], roots[prefixRoot] = true, true
				}
			}
			if timeFunctionOf(call.FunctionName()) != nil {
				roots[clockRoot] = true
			}
		}
	}))
	sortStrings(keys)
	return roots, keys, computed
}

// keyArgument returns which argument of a call is a fact key, or -1.
func keyArgument(call ast.CallExpr) int {
	args := call.Args()
	switch name := call.FunctionName(); {
	case isIndex(name) && isFacts(args[0]):
		return 1
	case name == "@in" && isFacts(args[1]):
		return 0
	}
	if f := timeFunctionOf(call.FunctionName()); f != nil {
		return f.key
	}
	if prefixFunctionOf(call.FunctionName()) != nil {
		return 0
	}
	return -1
}
