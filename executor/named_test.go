package executor_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestANumberMeansAnActionToPeopleAlone: an agent names its actions by their ids.
func TestANumberMeansAnActionToPeopleAlone(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ c c+")
	reader := view.NewReader(s.kv, "t", nil)
	for _, text := range []string{"b", "2", "3", "id:b", "number:2"} {
		want := "b"
		if text == "3" {
			want = "c"
		}
		answer, err := reader.Reviews(api.ReviewQuery{Plan: "p", Action: text}, s.now)
		if err != nil || answer.Action != want {
			t.Errorf("%s: %+v, %v", text, answer, err)
		}
		shown, err := reader.PreviewOf("a1", api.PreviewQuery{Plan: "p", Action: text}, s.now)
		if err != nil || (shown.Refused == "") != (text == "b") {
			t.Errorf("%s: %+v, %v", text, shown, err)
		}
	}
}
