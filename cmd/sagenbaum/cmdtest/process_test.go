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

func TestWhatTheDoctorSaysOfTheDiskAloneIsSeen(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"ok   fold       all\nwarn disk       a disk is getting full\n                next: make room": true,
		"FAIL disk       a disk is almost full":                                                        true,
		"warn disk       a disk is getting full\nwarn seed       an agent can read it":                 false,
		"ok   disk       9 GiB are free":                                                               false,
		`{"checks":[{"check":"disk","state":"warn"},{"check":"fold","state":"ok"}]}`:                   true,
		`{"checks":[{"check":"disk","state":"warn"},{"check":"fold","state":"FAIL"}]}`:                 false,
		`{"checks":[{"check":"disk","state":"ok"},{"check":"fold","state":"skip"}]}`:                   false,
	} {
		if got := onlyDisk(said); got != want {
			t.Errorf("%s: %t", said, got)
		}
	}
}
