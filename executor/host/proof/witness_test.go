package proof

import (
	"crypto/rand"
	"errors"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestAWitnessIsAURLAndAVerifierKey(t *testing.T) {
	t.Parallel()
	_, key, err := note.GenerateKey(rand.Reader, "witness.example/w1")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Witness{{}, {"https://w.example/x", key}, {"http://127.0.0.1:9/x", key}} {
		if err := CheckWitness(w); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for _, w := range []Witness{{"", key}, {"https://w.example", ""}, {"http://w.example", key}, {"ftp://w.example", key},
		{"https://w.example", "nonsense"}} {
		var refused *ledger.Refused
		if err := CheckWitness(w); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", w, err)
		}
	}
}
