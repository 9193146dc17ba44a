package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestPrintableShowsWhatATerminalWouldObey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain ä 漢 ─ 😀", "plain ä 漢 ─ 😀"},
		{"\x1b]0;pwn\x07", `\x1b]0;pwn\x07`},
		{"\u202egnp.exe", `\u202egnp.exe`},
		{"\u2066\u2069\u200b\u200f\ufeff\u00ad", `\u2066\u2069\u200b\u200f\ufeff\xad`},
		{"\u009b31m", `\x9b31m`},
		{"\x9b31m", "\uFFFD31m"}, // C1 as a byte is no UTF-8
		{"two\nlines\tand\u2028more", "two lines and more"},
		{"\U000e0041", `\U000e0041`},
		{"\u3164", `\u3164`},
	} {
		if got := Printable(c.text); got != c.want {
			t.Errorf("printable(%q) is %q, want %q", c.text, got, c.want)
		}
	}
}

// TestForPeopleLeavesHashesAsTheyAre: they are shown in hex, and bytes that are text are JSON.
func TestForPeopleLeavesHashesAsTheyAre(t *testing.T) {
	type shown struct {
		Root []byte
		JSON json.RawMessage
	}
	hash := []byte{0xb8, 0x73, 0x6b, '\n', 0x1b, 0xff}
	got := ForPeople(shown{Root: hash, JSON: json.RawMessage("\"\x1b\"")})
	if !bytes.Equal(got.Root, hash) || string(got.JSON) != `"\x1b"` {
		t.Errorf("%x, %s", got.Root, got.JSON)
	}
}
