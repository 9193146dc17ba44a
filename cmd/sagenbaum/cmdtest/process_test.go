package cmdtest

import (
	"testing"
)

func TestADoubledKeyOfALogLineIsSeen(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`time=2026 level=WARN msg="a tenant=b, tenant=c" tenant=default error="x \" key=1 key=2"`: "",
		`time=2026 level=WARN msg="the first key was made" tenant=default tenant=default key=k`:   "tenant",
		`time=2026 level=INFO msg=attached tenant=default applied=0 applied=0`:                    "applied",
		`panic: tenant=a tenant=a`: "",
	} {
		if got := doubledKey(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
