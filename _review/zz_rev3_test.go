package executor_test

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestXXQuarantined(t *testing.T) {
	for _, line := range []string{
		"open:second a:probe+approve effect:a=x7 effect:a@ana=x7 fail turn resolve:a own:a=x8 turn resolve:a@ana turn @3h turn",
		"open a:probe+approve effect:a=x7 fail turn own:a=x8 turn resolve:a turn @3h turn",
	} {
		s := newSchedule(t)
		by, left := two(s, "x7", "x8")
		s.play(line)
		t.Logf("%s\n %s %v %v", line, s.outcome(), by, left())
		for _, a := range s.show("p").Actions {
			t.Logf("  %s %s %s", a.Action, a.Undo, a.Note)
		}
	}
}

func TestXXFuzz(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ZZN"))
	from, _ := strconv.Atoi(os.Getenv("ZZFROM"))
	opens := []string{"open", "open:second", "open:accept", "open:continue"}
	marks := []string{"a:probe", "a:probe+for=2h", "a:askme", "a:probe+blind", "a", "a:refused+probe", "a:probe+approve", "a:may+probe", "a:dedupe", "a:probe+lateask"}
	words := []string{"a?", "a-", "a+", "effect:a=x7", "effect:a=x8", "effect:a=x7,x8", "effect:a=x8,x7", "effect:a=", "effect:a=,x8",
		"effect:a@ana=x7", "effect:a@ana=x7,x8", "effect:a@ana=,x8", "own:a=x7", "own:a=x8", "own:a=x9", "own:a=", "turn", "turn", "turn", "T", "T", "T",
		"fail", "commit", "undo:", "undo:!a", "retry:a", "resolve:a", "accept:a", "lost:a", "skip:a", "halt:a", "b b+", "b b?", "save:s", "back:s", "retry:a~1", "resolve:a~1", "stop",
		"q/open^", "q/a:probe", "q/a?", "q/effect:a=x7,x8", "q/effect:a=x7", "q/own:a=x8", "q/commit", "q/fail", "a.probe=duplicate", "a.probe=present", "a.probe=absent", "a=fail,done", "a=lost,done", "a=stop"}
	for seed := from; seed < from+n; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		var done []string
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSchedule(t)
			if seed%2 == 0 {
				two(s, "x7", "x8")
			}
			at := 0
			do := func(w string) {
				for x := range strings.FieldsSeq(w) {
					if x == "T" {
						at += 1 + r.Intn(40)
						x = fmt.Sprintf("@%dm", at)
					}
					if strings.HasPrefix(x, "save") || strings.HasPrefix(x, "q/") && x != "q/open^" && s.planOf("q") == nil {
						if strings.HasPrefix(x, "q/") { continue }
					}
					done = append(done, x)
					s.word(x)
				}
			}
			do(opens[r.Intn(len(opens))])
			do(marks[r.Intn(len(marks))])
			for range 4 + r.Intn(14) {
				do(words[r.Intn(len(words))])
			}
			do("turn T turn T turn")
			s.wantRefolded()
		})
		if !ok {
			fmt.Println("FAILED", seed, strings.Join(done, " "))
		}
	}
}
