package demo

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestBadArgumentsStopAWorker(t *testing.T) {
	_, err := Handler(undoBranch)(t.Context(), api.Command{Arguments: json.RawMessage(`[`)})
	var stop *StopError
	if !errors.As(err, &stop) {
		t.Errorf("ended with %v, want a stop", err)
	}
}
