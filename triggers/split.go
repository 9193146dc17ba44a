package triggers

import (
	"strings"

	"cel.dev/cel-go/common/operators"
)

// A long condition is mostly a chain of short ones, joined by && and ||, and the short
// ones are of few shapes. splitting takes such a chain apart by its tokens alone, as
// lift takes literals out: see joined. Whatever it does not understand stays whole.

// Bounds of what is taken apart. What has fewer terms compiles quickly as it is, and
// is evaluated in one piece.
const (
	termsMin   = 4
	nestingMax = 24 // brackets within each other
)

// joint is a piece of a condition: terms that an operator joins, or one term.
type joint struct {
	operator string // of operators: &&, || or !; empty for a term
	parts    []*joint
	from, to int // of a term: its text, in bytes
	term     int // index among the terms
}

// token is one token of a text, or && or ||.
type token struct{ from, to int }

// splitter takes a text apart.
type splitter struct {
	text        string
	tokens      []token
	at          int
	terms       []*joint
	root        *joint
	joints      int // operators that join, and those that turn a joint over
	comparisons int // tokens == != in
	failed      bool
}

// split returns the terms of a text and how they are joined, or nil where it is better
// compiled whole. The text is plain.
func split(text string) *splitter {
	s := &splitter{text: text}
	if s.scan(); s.failed {
		return nil
	}
	s.root = s.or()
	if s.failed || s.at < len(s.tokens) || len(s.terms) < termsMin {
		return nil
	}
	return s
}

// scan finds the tokens.
func (s *splitter) scan() {
	depth, joints := 0, 0 // of brackets; && and || anywhere
	for i := 0; i < len(s.text); {
		c := s.text[i]
		switch {
		case c <= ' ':
			i++
			continue
		case strings.HasPrefix(s.text[i:], "//"):
			for i < len(s.text) && s.text[i] != '\n' {
				i++
			}
			continue
		}
		end := tokenEnd(s.text, i)
		switch word := s.text[i:min(i+2, len(s.text))]; word {
		case "&&", "||":
			end = i + 2
			joints++
		case "==", "!=":
			end = i + 2
			s.comparisons++
		}
		switch {
		case c == '(' || c == '[' || c == '{':
			depth++
			s.failed = s.failed || depth > nestingMax
		case c == ')' || c == ']' || c == '}':
			depth--
		case s.text[i:end] == "in":
			s.comparisons++
		}
		s.tokens = append(s.tokens, token{i, end})
		i = end
	}
	s.failed = s.failed || joints+1 < termsMin
}

// peek is the token that comes next, or nothing at the end.
func (s *splitter) peek() string {
	if s.at == len(s.tokens) {
		return ""
	}
	return s.text[s.tokens[s.at].from:s.tokens[s.at].to]
}

func (s *splitter) or() *joint { return s.chain("||", operators.LogicalOr, s.and) }

func (s *splitter) and() *joint { return s.chain("&&", operators.LogicalAnd, s.operand) }

func (s *splitter) chain(token, operator string, next func() *joint) *joint {
	first := next()
	if s.peek() != token {
		return first
	}
	j := &joint{operator: operator, parts: []*joint{first}}
	for s.peek() == token && !s.failed {
		s.at++
		s.joints++
		j.parts = append(j.parts, next())
	}
	return j
}

// operand takes a joint in parentheses, or a term; with a ! before it, or several.
func (s *splitter) operand() *joint {
	start, nots := s.at, 0
	for s.peek() == "!" {
		s.at++
		nots++
	}
	var j *joint
	if s.peek() == "(" && s.endsAt(s.closing(s.at)+1) {
		s.at++
		j = s.or()
		s.failed = s.failed || s.peek() != ")"
		s.at++
	} else {
		j = s.single(start, nots)
		if j.from == s.tokenFrom(start) {
			nots = 0 // they stay with the term
		}
	}
	if nots%2 == 1 && !s.failed {
		s.joints++
		j = &joint{operator: operators.LogicalNot, parts: []*joint{j}}
	}
	return j
}

func (s *splitter) tokenFrom(at int) int {
	if at < len(s.tokens) {
		return s.tokens[at].from
	}
	return len(s.text)
}

// closing returns the index of the token that closes the bracket at a token; the last
// one where none does.
func (s *splitter) closing(at int) int {
	depth := 0
	for ; at < len(s.tokens); at++ {
		switch s.text[s.tokens[at].from] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return len(s.tokens) - 1
}

// endsAt reports whether an operand of && or || ends before a token.
func (s *splitter) endsAt(at int) bool {
	if at >= len(s.tokens) {
		return at == len(s.tokens)
	}
	switch s.text[s.tokens[at].from:s.tokens[at].to] {
	case "&&", "||", ")":
		return true
	}
	return false
}

// single takes a term: all up to the next && or || beside it. start is its first token
// with what is before it, s.at the one after that. A ! belongs to the term unless the
// term has no operator, which would bind the other way.
func (s *splitter) single(start, nots int) *joint {
	first, bare := s.at, true
	for !s.failed && !s.endsAt(s.at) {
		switch c := s.text[s.tokens[s.at].from]; c {
		case '(', '[', '{':
			s.at = s.closing(s.at)
		case '?':
			// A choice takes in what is on its left; .? is none.
			s.failed = s.failed || s.at == first || s.text[s.tokens[s.at-1].from] != '.'
		case ']', '}', ':', ',':
			s.failed = true
		default:
			bare = bare && (wordByte(c) && s.peek() != "in" || c == '.')
		}
		s.at++
	}
	if s.failed || s.at == first {
		s.failed = true
		return &joint{}
	}
	if nots > 0 && !bare {
		first = start
	}
	j := &joint{from: s.tokens[first].from, to: s.tokens[s.at-1].to, term: len(s.terms)}
	s.terms = append(s.terms, j)
	return j
}
