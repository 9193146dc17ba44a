package console

import (
	"net/http"
	"testing"
)

func TestStreamsAreBoundedForEachAndInAll(t *testing.T) {
	var s streams
	for range 3 {
		if _, ok := s.begin("a", 3); !ok {
			t.Fatal("refused within the bound")
		}
	}
	if status, ok := s.begin("a", 3); ok || status != http.StatusTooManyRequests {
		t.Errorf("one more of the same: %v, %d", ok, status)
	}
	s.end("a")
	if _, ok := s.begin("a", 3); !ok {
		t.Error("a place that was given back is not there")
	}
	for s.all < streamsMax {
		if _, ok := s.begin("others", streamsMax); !ok {
			t.Fatal("refused within the bound of all")
		}
	}
	if status, ok := s.begin("b", 3); ok || status != http.StatusServiceUnavailable {
		t.Errorf("one more of all: %v, %d", ok, status)
	}
	for range 3 {
		s.end("a")
	}
	if _, kept := s.by["a"]; kept {
		t.Error("who follows nothing is kept")
	}
}
