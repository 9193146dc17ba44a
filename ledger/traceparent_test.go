package ledger

import "testing"

func TestATraceparentIsReadAsTheStandardHasIt(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	trace, span, flags, ok := ParseTraceparent(good)
	if !ok || FormatTraceparent(trace, span, flags) != good {
		t.Fatalf("%x %x %x %v", trace, span, flags, ok)
	}
	if _, _, _, ok := ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-follows"); !ok {
		t.Error("a later version may say more behind the flags")
	}
	for _, bad := range []string{
		"", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", good + "-more", "ff" + good[2:], "0g" + good[2:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz",
	} {
		if _, _, _, ok := ParseTraceparent(bad); ok {
			t.Errorf("%q passes", bad)
		}
	}
}
