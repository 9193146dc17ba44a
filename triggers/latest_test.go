package triggers

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestLatestListsTheLastOccurrencesOfAWindow(t *testing.T) {
	list := func(seconds ...int) string {
		var texts []string
		for _, s := range seconds {
			texts = append(texts, stamp(time.Duration(s)*time.Second))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	// k occurred at 3, 5, 8 and 10 s, and a day, a month and a year later; asked at once after.
	year := 365 * 24 * 3600
	for arguments, want := range map[string]string{
		`9, "k", %3, duration("5s")`:        list(3, 5, 8), // both ends
		`9, "k", %3, duration("4999ms")`:    list(3, 5),
		`2, "k", %3, duration("7s")`:        list(8, 10),
		`9, "k", %4, duration("3s")`:        list(5),
		`9, "k", %6, duration("1s")`:        list(),
		`9, "k", %8, duration("-3s")`:       list(), // nothing lies in a window of less than nothing
		`9, "x", %3, duration("9s")`:        list(),
		`1, "k", %0, duration("720h")`:      list(30 * 24 * 3600),
		`1, "k", %0, duration("719h")`:      list(24 * 3600), // looked for far back
		`3, "k", %0, duration("87600h")`:    list(24*3600, 30*24*3600, year),
		`9, "k", %0, duration("2000000h")`:  list(3, 5, 8, 10, 24*3600, 30*24*3600, year),
		`256, "k", %10, duration("87600h")`: list(10, 24*3600, 30*24*3600, year),
	} {
		for second := range 11 {
			arguments = strings.ReplaceAll(arguments, fmt.Sprintf("%%%d,", second), stamp(time.Duration(second)*time.Second)+",")
		}
		m := newMemory(t)
		l := newTimeline(t, "latest("+arguments+") == "+want)
		for _, seconds := range []int64{3, 5, 8, 10, 24 * 3600, 30 * 24 * 3600, int64(year)} {
			m.assert("k", `1`, start+seconds*second)
		}
		m.now, l.scope.NowNs = start+int64(year)*second, start+int64(year)*second
		got := l.condition.Evaluate(l.scope, m)
		if got.Truth != True || got.WakeNs != 0 || got.Err != nil {
			t.Errorf("latest(%s) is not %s: %+v", arguments, want, got)
		}
	}
}

// More than n occurrences in the first look back are many more than are kept.
func TestLatestKeepsTheLastOfMany(t *testing.T) {
	m := newMemory(t)
	l := newTimeline(t, `latest(3, "k", `+stamp(0)+`, duration("1h")) == [`+stamp(997)+`, `+stamp(998)+`, `+stamp(999)+`]`)
	for ns := range int64(1000) {
		m.assert("k", `1`, start+ns)
	}
	m.now, l.scope.NowNs = start+second, start+second
	if got := l.condition.Evaluate(l.scope, m); got.Truth != True {
		t.Errorf("the last 3 of 1000: %+v", got)
	}
}

func TestLatestOfAnUnknownTimeIsUnknown(t *testing.T) {
	m := newMemory(t)
	l := newTimeline(t, `size(latest(3, "k", at("j"), duration("1h"))) == 0`)
	m.now, l.scope.NowNs = start+second, start+second
	if got := l.condition.Evaluate(l.scope, m); got.Truth != Unknown || len(got.Waits) != 1 || got.Waits[0] != "fact j" {
		t.Errorf("a window from an unknown time: %+v", got)
	}
	m.assert("j", `1`, start+second)
	if got := l.condition.Evaluate(l.scope, m); got.Truth != True || got.Moot {
		t.Errorf("none in a window that has begun: %+v", got)
	}
}

// The example of docs/triggers.md: a gap between start and stop.
func TestLatestFindsAGapInAStretchOfThePast(t *testing.T) {
	for last, want := range map[int64]Truth{20: False, 21: True} { // 10 s after the beat at 10, and 11 s
		m := newMemory(t)
		l := newTimeline(t,
			`at("start") < at("stop") && ([at("start")] + latest(256, "beat", at("start"), at("stop") - at("start"))).exists(t,
			t + duration("10s") < at("stop") && size(latest(1, "beat", t + duration("1ns"), duration("10s"))) == 0)`)
		for _, e := range []struct {
			key string
			at  int64
		}{{"start", 1}, {"beat", 10}, {"beat", last}, {"beat", 30}, {"stop", 33}} {
			m.assert(e.key, `1`, start+e.at*second)
		}
		m.now, l.scope.NowNs = start+33*second, start+33*second
		if got := l.condition.Evaluate(l.scope, m); got.Truth != want {
			t.Errorf("beats at 10, %d and 30: %s, want %s", last, got.Truth, want)
		}
	}
}
