package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the texts for people of the repository, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	top := filepath.Join("..", "..")
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") ||
			strings.Contains(path, string(filepath.Separator)+"adr"+string(filepath.Separator)) {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = string(text)
		return err
	})
	if err != nil || len(found) < 20 {
		t.Fatalf("%d documents, %v", len(found), err)
	}
	return found
}

// inlineCode is what a document shows as code within a sentence.
var inlineCode = regexp.MustCompile("`([^`\n]+)`")

// others are first words that are no commands of sagenbaum: programs, and the head of a file.
var others = []string{"go", "make", "systemctl", "condition"}

var isWord = regexp.MustCompile(`^[a-z]+$`)

// TestEveryCommandThatADocumentShowsIsOne: a line to type, with its flags and values; and what is
// named within a sentence, where it begins with "sagenbaum", or a word is followed by a verb, as in
// plan ls.
func TestEveryCommandThatADocumentShowsIsOne(t *testing.T) {
	verbs := map[string]bool{}
	for _, group := range newRoot().Commands() {
		for _, cmd := range group.Commands() {
			verbs[cmd.Name()] = true
		}
	}
	typed, named := 0, 0
	for path, text := range documents(t) {
		if filepath.Base(path) == "CHANGELOG.md" { // of versions that there were
			continue
		}
		for _, line := range commandLines(text) {
			if strings.ContainsAny(line, "`$") { // within a sentence, or of a script's variables
				continue
			}
			typed++
			if err := parses(t, line); err != nil {
				t.Errorf("%s: %s: %v", path, line, err)
			}
		}
		for _, code := range inlineCode.FindAllStringSubmatch(text, -1) {
			line, whole := strings.CutPrefix(code[1], "sagenbaum ")
			words := strings.Fields(line)
			if !whole && (len(words) < 2 || !verbs[words[1]] || !isWord.MatchString(words[0])) ||
				slices.Contains(others, words[0]) {
				continue
			}
			named++
			if problem := unknown(t, line); problem != "" {
				t.Errorf("%s: `%s`: %s", path, code[1], problem)
			}
		}
	}
	if typed < 50 || named < 50 {
		t.Errorf("%d lines to type and %d names were found: the test looks at the wrong place", typed, named)
	}
	for _, bad := range []string{"due ls", "plan lss", "plan ls --stat open", "undo --lst 1",
		"contract ls x --bad -- --any"} {
		if unknown(t, bad) == "" {
			t.Errorf("%q passes: the test finds nothing", bad)
		}
	}
}

// TestEveryCommandForServersElsewhereNamesThem: credentials that are made from a file without --url
// have clients look at 127.0.0.1:4222. The folder of `cluster config` knows its servers.
func TestEveryCommandForServersElsewhereNamesThem(t *testing.T) {
	seen := 0
	for path, text := range documents(t) {
		for _, line := range commandLines(text) {
			if strings.Contains(line, "--file users ") && strings.Contains(line, "--out ") {
				seen++
				if !strings.Contains(line, "--url ") {
					t.Errorf("%s: %s", path, line)
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d lines: the test looks at the wrong place", seen)
	}
}

// unknown says which word of a command that is named within a sentence does not exist; its arguments may
// be left out there.
func unknown(t *testing.T, line string) string {
	t.Helper()
	words := shellWords(t, line)
	cmd, rest, err := newRoot().Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "there is no " + rest[0]
	}
	for _, word := range rest {
		if word == "--" {
			break
		}
		name, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(name, "--") && cmd.Flag(strings.TrimPrefix(name, "--")) == nil &&
			cmd.InheritedFlags().Lookup(strings.TrimPrefix(name, "--")) == nil {
			return "there is no flag " + name
		}
	}
	return ""
}
