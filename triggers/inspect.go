package triggers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

func sortStrings(s []string) { slices.Sort(s) }

func isIndex(function string) bool {
	return function == operators.Index || function == operators.OptIndex ||
		function == operators.OptSelect
}

func isFacts(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "facts" }

func literalText(s string) ast.Expr {
	return ast.NewExprFactory().NewLiteral(0, types.String(s))
}

// constantText returns the string that e is, when it is made of literals.
func constantText(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		s, ok := e.AsLiteral().(types.String)
		return string(s), ok
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Add {
			return "", false
		}
		left, ok := constantText(call.Args()[0])
		if !ok {
			return "", false
		}
		right, ok := constantText(call.Args()[1])
		return left + right, ok
	}
	return "", false
}

// inspector walks a parsed condition and refuses what the type checker cannot
// know to be wrong.
type inspector struct {
	parsed *ast.AST
	err    *Error // the first
}

func inspectCondition(parsed *ast.AST) *Error {
	i := &inspector{parsed: parsed}
	i.visit(parsed.Expr(), false)
	return i.err
}

func (i *inspector) refuse(e ast.Expr, message, hint string) {
	if i.err != nil {
		return
	}
	at := i.parsed.SourceInfo().GetStartLocation(e.ID())
	i.err = &Error{Line: max(at.Line(), 1), Column: max(at.Column()+1, 1), Message: message,
		Hint: hint}
}

// visit walks e. selected says that only a part of its value is read.
func (i *inspector) visit(e ast.Expr, selected bool) {
	switch e.Kind() {
	case ast.IdentKind:
		i.ident(e, selected)
	case ast.SelectKind:
		i.selection(e, selected)
	case ast.CallKind:
		i.call(e, selected)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			i.visit(element, false)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			i.visit(entry.AsMapEntry().Key(), false)
			i.visit(entry.AsMapEntry().Value(), false)
		}
	case ast.StructKind:
		i.refuse(e, "a message", "use a map")
	case ast.ComprehensionKind:
		i.comprehension(e)
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	default:
		panic(fmt.Sprintf("triggers: no such kind of expression: %d", e.Kind()))
	}
}

const nowHint = "time enters through after(t), before(t), elapsed(t0, d) and the like, which " +
	"know when they flip"

func (i *inspector) ident(e ast.Expr, selected bool) {
	name := e.AsIdent()
	switch {
	case strings.HasPrefix(name, "."):
		i.refuse(e, "a leading dot", "write "+name[1:])
	case name == "now":
		i.refuse(e, "there is no now", nowHint)
	case name == "plan" || name == "verdict":
		i.refuse(e, name+" as a whole", "name a field: "+strings.Join(fieldsOf(name), ", "))
	case name == "facts" && !selected:
		i.refuse(e, "all facts at once",
			"name the key, as in facts[\"paid/o7\"], or ask \"paid/o7\" in facts")
	case name == "action" && !selected:
		i.refuse(e, "action as a whole", "name a field, as in action.amount")
	}
}

// fieldsOf returns the fields that the variables of a root have, in their order.
func fieldsOf(root string) []string {
	var fields []string
	for _, v := range variables {
		if field, ok := strings.CutPrefix(v.name, root+"."); ok {
			fields = append(fields, field)
		}
	}
	return fields
}

func (i *inspector) selection(e ast.Expr, selected bool) {
	sel := e.AsSelect()
	operand := sel.Operand()
	if operand.Kind() != ast.IdentKind {
		i.visit(operand, true)
		return
	}
	root, field := operand.AsIdent(), sel.FieldName()
	switch root {
	case "plan", "verdict":
		if fields := fieldsOf(root); !slices.Contains(fields, field) {
			hint := nearest.DidYouMean(field, fields)
			if hint == "" {
				hint = "there is " + strings.Join(fields, ", ")
			}
			i.refuse(e, root+" has no field "+field, hint)
		}
	case "action":
	default:
		i.visit(operand, true)
		return
	}
	if !selected && (field == "labels" || root == "action" &&
		(field == "input" || field == "output")) {
		i.refuse(e, root+"."+field+" as a whole", "name a field, as in "+root+"."+field+".x")
	}
}

func (i *inspector) call(e ast.Expr, selected bool) {
	call := e.AsCall()
	name, args := call.FunctionName(), call.Args()
	if name == "now" {
		i.refuse(e, "there is no now", nowHint)
		return
	}
	if call.IsMemberFunction() {
		i.visit(call.Target(), false)
		i.timeZone(e, name, args)
	}
	for n, arg := range args {
		i.visit(arg, n == 0 && isIndex(name) || n == 1 && name == operators.In)
	}
	if isIndex(name) && isAction(args[0]) {
		i.actionField(e, args[1], selected)
	}
	i.constants(e, name, args)
	if prefixFunctionOf(name) != nil {
		i.prefix(args[0])
	}
}

// prefix refuses a prefix of facts that is not known when the trigger is registered.
func (i *inspector) prefix(e ast.Expr) {
	if text, ok := constantText(e); ok {
		if text == "" || len(text) > keyMax {
			i.refuse(e, fmt.Sprintf("a prefix of %d bytes", len(text)), fmt.Sprintf("1 to %d", keyMax))
		}
		return
	}
	if !isRegistered(e) {
		i.refuse(e, "a prefix of facts that is not known at registration", "a text, or one made of the "+
			"input, the names and the labels of action and plan, as in \"paid/\" + action.order")
	}
}

// isRegistered reports whether a text is known when the trigger is registered.
func isRegistered(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.SelectKind:
		return isRegisteredName(e)
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch {
		case call.IsMemberFunction():
			return false
		case call.FunctionName() == operators.Add:
			return isRegistered(args[0]) && isRegistered(args[1])
		case call.FunctionName() == "string":
			return len(args) == 1 && isRegistered(args[0])
		}
		return call.FunctionName() == operators.Index && isRegisteredName(e)
	}
	return false
}

// isRegisteredName is isRegistered of a chain of selections.
func isRegisteredName(e ast.Expr) bool {
	var path []string // from its end
	for isLink(e) {
		operand, step, _ := link(e)
		name := ""
		if step == nil {
			name = e.AsSelect().FieldName()
		} else if text, ok := constantText(step); ok {
			name = text
		}
		path, e = append(path, name), operand
	}
	if e.Kind() != ast.IdentKind || len(path) == 0 {
		return false
	}
	first := path[len(path)-1]
	switch e.AsIdent() {
	case "action":
		switch first {
		case "input", "labels":
			return len(path) > 1
		}
		return !slices.Contains([]string{"output", "outcome", "presence", "at", ""}, first)
	case "plan":
		return slices.Contains([]string{"id", "label", "owner", "agent"}, first) ||
			first == "labels" && len(path) == 2
	}
	return false
}

// actionField refuses action[key] where it could be input, output or labels as a
// whole.
func (i *inspector) actionField(e, key ast.Expr, selected bool) {
	switch name, ok := constantText(key); {
	case !ok:
		i.refuse(e, "a computed field of action", "use action.input[...]")
	case !selected && (name == "input" || name == "output" || name == "labels"):
		i.refuse(e, "action."+name+" as a whole", "name a field, as in action."+name+".x")
	}
}

// constants refuses arguments of time functions that can never be right.
func (i *inspector) constants(e ast.Expr, name string, args []ast.Expr) {
	f := timeFunctionOf(name)
	if f == nil || len(args) != len(f.args) {
		return
	}
	if f.key >= 0 {
		if key, ok := constantText(args[f.key]); ok && (key == "" || len(key) > keyMax) {
			i.refuse(args[f.key], "a key of "+fmt.Sprint(len(key))+" bytes", fmt.Sprintf("1 to %d", keyMax))
		}
	}
	if f.most > 0 && args[0].Kind() == ast.LiteralKind {
		if n, ok := args[0].AsLiteral().(types.Int); ok && (n < 1 || n > types.Int(f.most)) {
			what, hint := "at least %d", "use 1 to %d"
			if name == "latest" {
				what, hint = "the latest %d", "1 to %d"
			}
			i.refuse(args[0], fmt.Sprintf(what, int64(n)), fmt.Sprintf(hint, f.most))
		}
	}
	if last := args[len(args)-1]; f.positive && last.Kind() == ast.CallKind &&
		last.AsCall().FunctionName() == "duration" && len(last.AsCall().Args()) == 1 {
		if text, ok := constantText(last.AsCall().Args()[0]); ok &&
			(strings.HasPrefix(text, "-") || text == "0" || text == "0s") {
			i.refuse(last, "a window of "+text, "use a duration above zero")
		}
	}
}

// timeZone refuses named time zones: their rules come from the machine, and an
// evaluation must be the same on every machine for ever.
func (i *inspector) timeZone(e ast.Expr, name string, args []ast.Expr) {
	if len(args) != 1 || !strings.HasPrefix(name, "get") {
		return
	}
	zone, ok := constantText(args[0])
	if !ok || zone != "UTC" && !zoneOffset(zone) {
		i.refuse(e, "a named or computed time zone", "use \"UTC\" or an offset, as in \"+02:00\"")
	}
}

func zoneOffset(zone string) bool {
	matched, err := regexp.MatchString(`^[+-]?[0-9]{2}:[0-9]{2}$`, zone)
	return err == nil && matched
}

func (i *inspector) comprehension(e ast.Expr) {
	fold := e.AsComprehension()
	for _, name := range []string{fold.IterVar(), fold.IterVar2()} {
		switch name {
		case "facts", "action", "plan", "verdict", "now":
			i.refuse(e, "a loop variable called "+name, "use another name")
		}
	}
	i.visit(fold.IterRange(), false)
	i.visit(fold.AccuInit(), false)
	i.visit(fold.LoopCondition(), false)
	i.visit(fold.LoopStep(), false)
	i.visit(fold.Result(), false)
}
