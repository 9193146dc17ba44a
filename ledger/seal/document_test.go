
// TestWhatWouldHaveToBeOpened: a part of a sealed value, or what is computed from one; whatever else is
// in the document, and however deep.
func TestWhatWouldHaveToBeOpened(t *testing.T) {
	box := string(Seal(Key{1}, Place{"t", "p", "a", "output.card"}, json.RawMessage(`{"n":1}`)))
	document := json.RawMessage(`{"a":{"card":` + box + `,"x/~y":[1,` + box + `],"id":7},"deep":` +
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`)
	for _, c := range []struct {
		path   string
		copied bool
		want   string
	}{
		{"a card", true, ""}, {"a card n", true, "a.card"}, {"a card", false, "a.card"}, {"a", true, ""}, {"a", false, "a"},
		{"a id", false, ""}, {"a none", false, ""}, {"a x/~y 1 n", true, "a.x/~y.1"}, {"a x/~y 1", true, ""},
		{"a x/~y 0", false, ""}, {"a x/~y 2", false, ""}, {"deep 0 0", false, ""}, {"none", false, ""},
	} {
		if got := Closed(document, strings.Fields(c.path), c.copied); got != c.want {
			t.Errorf("%s, copied %v: %q, want %q", c.path, c.copied, got, c.want)
		}
	}
}
