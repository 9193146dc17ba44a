package triggers

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/parser"
)

// cel-go has two parsers: the one that ANTLR generates, which decides what a text
// means and why it is refused, and a Pratt parser that is eight times as fast and
// young. A plain text goes to the quick one first; whatever that does not take goes
// to the other. TestBothParsersAgree and FuzzBothParsersAgree hold what it takes
// against the other, expression by expression.

// quickParser is the quick parser of a dialect. It belongs to one goroutine.
type quickParser struct {
	parser *parser.Parser
	shell  *cel.Ast // takes what was parsed: cel-go has no other way from its AST to an Ast
}

// Limits that leave every text near a limit to the other parser.
const (
	quickNestingMax = parseMax - 8
	quickNodesMax   = nodesMax / 2 // where macros are expanded
)

func newQuickParser(env *cel.Env) quickParser {
	p, err := parser.NewParser(
		parser.EnablePrattParser(true),
		parser.Macros(env.Macros()...),
		parser.EnableOptionalSyntax(true),
		parser.EnableHiddenAccumulatorName(true),
		parser.ExpressionSizeCodePointLimit(textMax),
		parser.MaxRecursionDepth(quickNestingMax),
		parser.MaxExpressionNodeCount(quickNodesMax),
		parser.ErrorRecoveryLimit(1),
	)
	if err != nil {
		panic("triggers: cannot make the quick parser: " + err.Error())
	}
	shell, issues := env.Parse("true")
	if issues.Err() != nil {
		panic("triggers: cannot make the quick parser: " + issues.Err().Error())
	}
	return quickParser{p, shell}
}

// parse returns the parsed text, or nil where the other parser is to look at it. What
// it returns is good until the next call.
func (q *quickParser) parse(text string) *cel.Ast {
	if !plain(text) {
		return nil
	}
	parsed, errs := q.parser.Parse(common.NewTextSource(text))
	if len(errs.GetErrors()) > 0 {
		return nil
	}
	*q.shell.NativeRep() = *parsed
	return q.shell
}

// plain reports whether a text has nothing that the two parsers are known to read
// differently, or might: only ASCII, no escape, no quoted name, no string of three
// quotes or with a prefix, no hexadecimal number with a capital X.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' || c == '\\' || c == '`' {
			return false
		}
	}
	for i := 0; i < len(text); {
		if strings.HasPrefix(text[i:], "//") {
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return true
			}
			i += end
			continue
		}
		end := tokenEnd(text, i)
		token := text[i:end]
		word := wordByte(token[0]) && token[0] != '"' && token[0] != '\''
		switch {
		case word && (token[end-i-1] == '"' || token[end-i-1] == '\''), strings.HasPrefix(token, "0X"),
			strings.HasPrefix(token, `"""`), strings.HasPrefix(token, "'''"):
			return false
		}
		i = end
	}
	return true
}
