package markup

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// depthMost bounds templates that invoke themselves.
const depthMost = 1000

const (
	and = "and"
	or  = "or"
)

// scope is one run of one template.
type scope struct {
	set   *Set
	out   *strings.Builder
	vars  []variable
	depth int
}

type variable struct {
	name  string // with its "$"
	value reflect.Value
}

func (s *Set) run(out *strings.Builder, name string, data reflect.Value) error {
	return (&scope{set: s, out: out}).invoke(name, data)
}

// invoke runs a template within this one, which sees none of its variables.
func (r *scope) invoke(name string, data reflect.Value) error {
	tree := r.set.trees[name]
	switch {
	case tree == nil:
		return fmt.Errorf("no template %q", name)
	case r.depth >= depthMost:
		return fmt.Errorf("template %q invokes itself too deep", name)
	}
	inner := &scope{set: r.set, out: r.out, vars: []variable{{"$", data}}, depth: r.depth + 1}
	return inner.list(tree.Root, data)
}

func (r *scope) list(list *parse.ListNode, dot reflect.Value) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		if err := r.node(node, dot); err != nil {
			return err
		}
	}
	return nil
}

func (r *scope) node(node parse.Node, dot reflect.Value) error {
	switch n := node.(type) {
	case *parse.TextNode:
		r.out.Write(n.Text)
		return nil
	case *parse.ActionNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		printed, lines := textOf(value)
		at := r.set.places[n]
		if at.visible() {
			printed = r.set.show(printed, lines)
		}
		r.out.WriteString(at.escape(printed))
		return nil
	case *parse.TemplateNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		return r.invoke(n.Name, value)
	}
	defer func(kept int) { r.vars = r.vars[:kept] }(len(r.vars))
	switch n := node.(type) {
	case *parse.IfNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		if truth(value) {
			return r.list(n.List, dot)
		}
		return r.list(n.ElseList, dot)
	case *parse.WithNode:
		value, err := r.pipe(n.Pipe, dot)
		if err != nil {
			return err
		}
		if truth(value) {
			return r.list(n.List, value)
		}
		return r.list(n.ElseList, dot)
	case *parse.RangeNode:
		return r.each(n, dot)
	}
	return fmt.Errorf("%s: not supported", node)
}

// each runs the body of a range over a slice, or over a map in the order of its names.
func (r *scope) each(n *parse.RangeNode, dot reflect.Value) error {
	kept := len(r.vars)
	over, err := r.pipe(&parse.PipeNode{Cmds: n.Pipe.Cmds}, dot)
	if err != nil {
		return err
	}
	over = plain(over)
	if !truth(over) {
		return r.list(n.ElseList, dot)
	}
	var keys []reflect.Value
	switch over.Kind() {
	case reflect.Slice:
		for i := range over.Len() {
			keys = append(keys, reflect.ValueOf(i))
		}
	case reflect.Map:
		keys = over.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		})
	default:
		return fmt.Errorf("%s: cannot range over %s", n.Pipe, over.Type())
	}
	for _, key := range keys {
		element, err := index(over, key)
		if err != nil {
			return err
		}
		r.vars = r.vars[:kept]
		values := []reflect.Value{key, element}
		for i, decl := range n.Pipe.Decl {
			r.vars = append(r.vars, variable{decl.Ident[0], values[2-len(n.Pipe.Decl)+i]})
		}
		if err := r.list(n.List, element); err != nil {
			return err
		}
	}
	return nil
}

// pipe evaluates a pipeline and declares its variable.
func (r *scope) pipe(pipe *parse.PipeNode, dot reflect.Value) (value reflect.Value, err error) {
	if pipe == nil {
		return value, nil
	}
	if len(pipe.Cmds) != 1 || pipe.IsAssign || len(pipe.Decl) > 1 {
		return value, fmt.Errorf("%s: not supported", pipe)
	}
	if value, err = r.command(pipe.Cmds[0], dot); err != nil {
		return value, fmt.Errorf("%s: %w", pipe, err)
	}
	for _, decl := range pipe.Decl {
		r.vars = append(r.vars, variable{decl.Ident[0], value})
	}
	return value, nil
}

func (r *scope) command(c *parse.CommandNode, dot reflect.Value) (reflect.Value, error) {
	name, ok := c.Args[0].(*parse.IdentifierNode)
	if !ok {
		if len(c.Args) > 1 {
			return reflect.Value{}, errors.New("only functions have arguments")
		}
		return r.arg(c.Args[0], dot)
	}
	var args []reflect.Value
	for _, node := range c.Args[1:] {
		value, err := r.arg(node, dot)
		if err != nil {
			return value, err
		}
		args = append(args, value)
		if name.Ident == and && !truth(value) || name.Ident == or && truth(value) {
			break
		}
	}
	if f, ok := r.set.funcs[name.Ident]; ok {
		return call(f, args)
	}
	return builtin(name.Ident, args)
}

func (r *scope) arg(node parse.Node, dot reflect.Value) (reflect.Value, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(r.vars) - 1; i >= 0; i-- {
			if r.vars[i].name == n.Ident[0] {
				return fields(r.vars[i].value, n.Ident[1:])
			}
		}
	case *parse.ChainNode:
		value, err := r.arg(n.Node, dot)
		if err != nil {
			return value, err
		}
		return fields(value, n.Field)
	case *parse.PipeNode:
		return r.pipe(n, dot)
	case *parse.IdentifierNode:
		return r.command(&parse.CommandNode{Args: []parse.Node{n}}, dot)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text), nil
	case *parse.BoolNode:
		return reflect.ValueOf(n.True), nil
	case *parse.NumberNode:
		if n.IsInt {
			return reflect.ValueOf(n.Int64), nil
		}
	}
	return reflect.Value{}, fmt.Errorf("%s: not supported", node)
}

// fields follows names through structs and maps. An element that a map does not have is
// nothing, and so are its fields.
func fields(value reflect.Value, names []string) (reflect.Value, error) {
	for _, name := range names {
		value = plain(value)
		switch value.Kind() {
		case reflect.Invalid:
			return value, nil
		case reflect.Map:
			value = value.MapIndex(reflect.ValueOf(name))
		case reflect.Struct:
			field, ok := value.Type().FieldByName(name)
			if !ok || !field.IsExported() {
				return value, fmt.Errorf("%s has no field %s", value.Type(), name)
			}
			var err error
			if value, err = value.FieldByIndexErr(field.Index); err != nil {
				return value, err
			}
		default:
			return value, fmt.Errorf("%s has no field %s", value.Type(), name)
		}
	}
	return value, nil
}

// plain is what an interface or pointer has; nothing, where that is nil.
func plain(value reflect.Value) reflect.Value {
	for value.Kind() == reflect.Interface || value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	return value
}

// truth reports that a value is not the zero of its kind, nor empty; structs are true.
func truth(value reflect.Value) bool {
	value = plain(value)
	switch value.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Map, reflect.Slice, reflect.String:
		return value.Len() > 0
	case reflect.Struct:
		return true
	}
	return !value.IsZero()
}

// textOf is a value as text, and whether it keeps its lines; nothing, for what is not there.
func textOf(value reflect.Value) (text string, lines bool) {
	value = plain(value)
	if !value.IsValid() {
		return "", false
	}
	return fmt.Sprint(value.Interface()), value.Type() == reflect.TypeFor[Lines]()
}

// call calls a function of templates. Integers are converted to what it takes.
func call(f reflect.Value, args []reflect.Value) (reflect.Value, error) {
	t := f.Type()
	if len(args) != t.NumIn() && !(t.IsVariadic() && len(args) >= t.NumIn()-1) {
		return reflect.Value{}, fmt.Errorf("%d arguments are wrong", len(args))
	}
	for i, arg := range args {
		in := t.In(min(i, t.NumIn()-1))
		if t.IsVariadic() && i >= t.NumIn()-1 {
			in = in.Elem()
		}
		switch {
		case in.Kind() == reflect.Interface && !arg.IsValid():
			arg = reflect.Zero(in)
		case in.Kind() != reflect.Interface:
			arg = plain(arg)
		}
		switch {
		case !arg.IsValid():
			return arg, fmt.Errorf("argument %d is nothing", i+1)
		case arg.Type().AssignableTo(in):
		case arg.CanInt() && (in.Kind() == reflect.Uint64 || in.Kind() == reflect.Int):
			arg = arg.Convert(in)
		default:
			return arg, fmt.Errorf("argument %d is %s, not %s", i+1, arg.Type(), in)
		}
		args[i] = arg
	}
	return f.Call(args)[0], nil
}

// builtin calls a function of the language.
func builtin(name string, args []reflect.Value) (reflect.Value, error) {
	for i := range args {
		args[i] = plain(args[i])
	}
	most := map[string]int{"not": 1, "len": 1, "eq": 2, "ne": 2, "lt": 2, "gt": 2, "index": 2}
	if n, ok := most[name]; len(args) == 0 || ok && len(args) != n {
		return reflect.Value{}, fmt.Errorf("%s of %d arguments", name, len(args))
	}
	switch name {
	case and, or:
		return args[len(args)-1], nil
	case "not":
		return reflect.ValueOf(!truth(args[0])), nil
	case "len":
		if args[0].IsValid() {
			return reflect.ValueOf(args[0].Len()), nil
		}
		return reflect.ValueOf(0), nil
	case "index":
		return index(args[0], args[1])
	case "printf":
		return printf(args)
	}
	order, err := compare(args[0], args[1])
	result := order == 0
	switch name {
	case "ne":
		result = order != 0
	case "lt":
		result = order < 0
	case "gt":
		result = order > 0
	}
	return reflect.ValueOf(result), err
}

func index(of, at reflect.Value) (reflect.Value, error) {
	switch {
	case of.Kind() == reflect.Map && at.IsValid() && at.Type().AssignableTo(of.Type().Key()):
		if value := of.MapIndex(at); value.IsValid() {
			return value, nil
		}
		return reflect.Zero(of.Type().Elem()), nil
	case of.Kind() == reflect.Slice && at.CanInt() && at.Int() >= 0 && at.Int() < int64(of.Len()):
		return of.Index(int(at.Int())), nil
	}
	return reflect.Value{}, errors.New("no such element")
}

func printf(args []reflect.Value) (reflect.Value, error) {
	var values []any
	for _, arg := range args[1:] {
		if !arg.IsValid() {
			return arg, errors.New("printf of nothing")
		}
		values = append(values, arg.Interface())
	}
	return reflect.ValueOf(fmt.Sprintf(args[0].String(), values...)), nil
}

// compare orders two integers or two strings; of other values, equal or not.
func compare(a, b reflect.Value) (int, error) {
	switch {
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		return strings.Compare(a.String(), b.String()), nil
	case a.Kind() == reflect.Bool && b.Kind() == reflect.Bool:
		if a.Bool() == b.Bool() {
			return 0, nil
		}
		return 1, nil
	}
	x, okA := integer(a)
	y, okB := integer(b)
	switch {
	case !okA || !okB:
		return 0, errors.New("values of kinds that cannot be compared")
	case x < y:
		return -1, nil
	case x > y:
		return 1, nil
	}
	return 0, nil
}

// integer is a number of any size; sizes and counts of pages are far below its bounds.
func integer(value reflect.Value) (int64, bool) {
	switch {
	case value.CanInt():
		return value.Int(), true
	case value.CanUint():
		return int64(min(value.Uint(), 1<<63-1)), true
	}
	return 0, false
}
