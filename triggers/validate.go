package triggers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// An agent may write any text, and what is wrong with it must not cost more to find than
// a text that is right. cel-go reports all that is wrong, looks for names that were meant
// among all that it knows, and writes everything out with its lines, which in 4 KiB
// is a long text. So what would be reported many times is refused here at the first.

// Bounds on names that nothing has: up to these, cel-go says what is wrong.
const (
	unknownMax    = 8
	unknownLenMax = 64
)

// refuseAt refuses what is at an expression.
func refuseAt(parsed *ast.AST, e ast.Expr, message, hint string) *Error {
	at := parsed.SourceInfo().GetStartLocation(e.ID())
	return &Error{Line: max(at.Line(), 1), Column: max(at.Column()+1, 1), Message: message, Hint: hint}
}

// strange refuses a text with many names that nothing has, or a long one.
func (d dialect) strange(parsed *ast.AST) *Error {
	var first ast.Expr
	var name string
	loops := map[string]bool{}
	unknown, long := 0, false
	note := func(e ast.Expr, text string) {
		unknown++
		if len(text) > unknownLenMax && !long || first == nil {
			first, name = e, text
		}
		long = long || len(text) > unknownLenMax
	}
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind: // comes before what it loops over
			fold := e.AsComprehension()
			loops[fold.IterVar()], loops[fold.IterVar2()], loops[fold.AccuVar()] = true, true, true
		case ast.IdentKind:
			if text := e.AsIdent(); !loops[text] && !d.knows(text) {
				note(e, text)
			}
		case ast.CallKind:
			if text := e.AsCall().FunctionName(); !d.env.HasFunction(text) {
				note(e, text)
			}
		}
	}))
	if unknown <= unknownMax && !long {
		return nil
	}
	hint := nearest.DidYouMean(name, d.names)
	if hint == "" {
		hint = d.reads
	}
	if len(name) > unknownLenMax {
		name = name[:unknownLenMax] + "..."
	}
	return refuseAt(parsed, first, fmt.Sprintf("undeclared name %q", name), hint)
}

// knows reports whether a name, or one below it, is of the language.
func (d dialect) knows(name string) bool {
	if isVariable(name) {
		return true
	}
	for _, v := range d.env.Variables() {
		if v.Name() == name {
			return true
		}
	}
	_, found := d.env.CELTypeProvider().FindIdent(name)
	return found
}

// constant is a literal that is converted when it is compiled.
type constant struct {
	literal ast.Expr
	call    string
	to      ref.Type // nil: a pattern
}

// constantsOf finds them, in the order of the text, and refuses a pattern that is too
// large.
func constantsOf(parsed *ast.AST) (list []constant, err *Error) {
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if err != nil || e.Kind() != ast.CallKind || len(e.AsCall().Args()) == 0 {
			return
		}
		call := e.AsCall()
		c := constant{literal: call.Args()[0], call: call.FunctionName()}
		switch c.call {
		case "duration":
			c.to = types.DurationType
		case "timestamp":
			c.to = types.TimestampType
		case "matches":
			if !call.IsMemberFunction() && len(call.Args()) == 2 {
				c.literal = call.Args()[1]
			}
		default:
			return
		}
		if c.literal.Kind() != ast.LiteralKind {
			return
		}
		list = append(list, c)
		pattern, ok := c.literal.AsLiteral().(types.String)
		if c.to != nil || !ok {
			return
		}
		if size, wrong := types.RegexProgramSize(string(pattern)); wrong == nil && size > regexMax {
			message := fmt.Sprintf("regex program size %d exceeds limit of %d", size, regexMax)
			err = refuseAt(parsed, c.literal, message, "")
		}
	}))
	return list, err
}

// durationHint is what to write where a duration is none.
const durationHint = "the largest unit is the hour, as in duration(\"24h\")"

// validate refuses the first literal that is not what it is converted to.
func validate(checked *cel.Ast, list []constant) *Error {
	for _, c := range list {
		value := c.literal.AsLiteral()
		wrong := false
		if c.to != nil {
			wrong = types.IsError(value.ConvertToType(c.to))
		} else if pattern, ok := value.(types.String); ok {
			_, err := regexp.Compile(string(pattern))
			wrong = err != nil
		}
		if wrong {
			hint := ""
			if c.to == types.DurationType {
				hint = durationHint
			}
			return refuseAt(checked.NativeRep(), c.literal, "invalid "+c.call+" argument", hint)
		}
	}
	return nil
}

// wordsOf are what names may be that have a few words only.
var wordsOf = map[string][]string{
	"action.outcome":  {"unknown", "completed", "failed", "in_doubt"},
	"action.presence": {"present", "absent", "duplicate"},
	"verdict.outcome": {"allow", "block", "redirect"},
	"plan.status": {"open", "failed", "cancelled", "unwinding", "committing", "committed",
		"compensated", "quarantined", "resolved", "delivering", "delivered"},
}

// Words are what a name may be that has a few words only, as plan.status; nil: it may be any text.
func Words(name string) []string { return slices.Clone(wordsOf[name]) }

// Unheard finds a comparison of a condition with a text that the name beside it never is, as in
// verdict.outcome == "blok"; nil: it has no such comparison. It refuses nothing: such a condition
// may be held.
func (c *Cache) Unheard(expression string) (found *Error) {
	l := c.language
	checked, err := l.check(l.conditions, expression, inspectCondition)
	if err != nil {
		return nil
	}
	parsed := checked.NativeRep()
	note := func(name, text ast.Expr) {
		if name.Kind() != ast.IdentKind || text.Kind() != ast.LiteralKind || found != nil {
			return
		}
		known, word := wordsOf[name.AsIdent()], text.AsLiteral()
		heard := func(w string) bool { return types.String(w) == word }
		if len(known) == 0 || slices.ContainsFunc(known, heard) {
			return
		}
		found = refuseAt(parsed, text, fmt.Sprintf("%s is never %v", name.AsIdent(),
			types.Format(word)), "want one of "+strings.Join(known, ", "))
	}
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
		case operators.Equals, operators.NotEquals:
			note(args[0], args[1])
			note(args[1], args[0])
		case operators.In:
			if args[1].Kind() == ast.ListKind {
				for _, element := range args[1].AsList().Elements() {
					note(args[0], element)
				}
			}
		}
	}))
	return found
}
