//go:build exercise && linux

package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// readOnly makes a mounted disk read-only, or writable again. Nobody may write on it.
func readOnly(t *testing.T, disk string, so bool) {
	t.Helper()
	option := map[bool]string{true: "remount,ro", false: "remount,rw"}[so]
	if out, err := exec.Command("mount", "-o", option, disk).CombinedOutput(); err != nil {
		t.Fatalf("%s of %s: %v %s", option, disk, err, out)
	}
}

// onDisk has a folder of the data be on a disk of its own.
func onDisk(t *testing.T, data, disk, folder string) {
	t.Helper()
	at := filepath.Join(data, folder)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.MkdirAll(filepath.Join(disk, folder), 0o700),
		os.Symlink(filepath.Join(disk, folder), at)); err != nil {
		t.Fatal(err)
	}
}

// onSmallDisk has a folder of the data, or the tiles, be on a small disk, for serve with these flags.
func onSmallDisk(t *testing.T, folder string) (disk, data string, flags []string) {
	t.Helper()
	disk, data = cmdtest.SmallDisk(t), cmdtest.DataDir(t)
	if folder == "tiles" {
		return disk, data, []string{"--tiles", disk}
	}
	onDisk(t, data, disk, folder)
	return disk, data, nil
}

// diskNext is what the doctor says of a disk that is full, or small.
const diskNext = "make room on it, or stop serve, move --data or --tiles to a larger disk, and start serve there; " +
	"a full one stops the ledger or the state, and loses nothing"

// moves moves data to this machine's own disk, as diskNext says, and starts a server there.
func moves(t *testing.T, data, key string) {
	t.Helper()
	larger := cmdtest.DataDir(t)
	if out, err := exec.Command("cp", "-aL", data, larger).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	s := cmdtest.ServeFor(t, larger)
	s.Asks(t, "default").Content(t)
	if f := s.Asks(t, "default").Findings(t)["disk"]; strings.Contains(strings.Join(f.Details, " "), "of 64.0 MiB") {
		t.Errorf("on a larger disk: %+v", f)
	}
	s.Ask(t, "default", "fact", "get", key).Wants(t, "fact get", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// degradedUntil wants status and doctor to say what is wrong with a tenant.
func degradedUntil(t *testing.T, ctx context.Context, s *cmdtest.Served, why string) {
	t.Helper()
	cmdtest.Until(t, ctx, "status says "+why, func() bool {
		r := s.Ask(t, "default", "status", "--timeout", "2s")
		return r.Code == cli.ExitLook && strings.Contains(r.Stdout, why)
	})
	r := s.Ask(t, "default", "doctor")
	if r.Wants(t, "doctor", cli.ExitLook); !strings.Contains(r.Stdout, "FAIL executor") ||
		!strings.Contains(r.Stdout, why) {
		t.Errorf("doctor says\n%swant %q", r.Stdout, why)
	}
}

// holdingAgain waits until a tenant is held, and a record is stored and folded.
func holdingAgain(t *testing.T, ctx context.Context, s *cmdtest.Served, key string) {
	t.Helper()
	cmdtest.Until(t, ctx, "the tenant is held again", func() bool {
		return s.Ask(t, "default", "status", "--timeout", "2s").Code == cli.ExitGood
	})
	s.Ask(t, "default", "fact", "put", key, "1").Wants(t, "fact put", cli.ExitGood)
	s.Ask(t, "default", "fact", "get", key).Wants(t, "fact get", cli.ExitGood)
}

// A disk runs full: the ledger's, or the one that has everything. Whoever asks is told so,
// also by a server that starts on it, and the work goes on when there is room.
func TestAFullDiskIsSaidByStatusAndDoctor(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"nats", "."} {
		t.Run("disk of "+folder, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			disk, data := cmdtest.SmallDisk(t), cmdtest.DataDir(t)
			if folder == "." {
				data = filepath.Join(disk, "data")
			} else {
				onDisk(t, data, disk, folder)
			}
			s := cmdtest.ServeFor(t, data)
			s.Ask(t, "default", "fact", "put", "a", "1").Wants(t, "fact put", cli.ExitGood)
			empty := cmdtest.FillDisk(t, disk)
			for i := 0; ; i++ { // until one finds no room
				r := s.Ask(t, "default", "fact", "put", fmt.Sprint("k", i), `"`+strings.Repeat("x", 20_000)+`"`,
					"--timeout", "1s")
				if r.Code != cli.ExitGood {
					break
				}
			}
			degradedUntil(t, ctx, s, "no space left on device")
			ask := s.Asks(t, "default")
			cmdtest.Until(t, ctx, "doctor names the disk", func() bool {
				f := ask.Advised(t, "disk")
				return f.Next == diskNext &&
					strings.Contains(strings.Join(f.Details, " "), "0 B of 64.0 MiB are free for the ledger")
			})
			if f := ask.Advised(t, "executor"); !strings.HasPrefix(f.Next, "make room on the disk, or make it writable") {
				t.Errorf("%+v", f)
			}
			if r := s.Ask(t, "default", "plan", "ls"); r.Code == cli.ExitGood ||
				!strings.Contains(r.Stderr, "degraded") {
				t.Errorf("plan ls on a full disk ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
			empty()
			holdingAgain(t, ctx, s, "b")
			ask.Content(t) // but for the disk, which is small
			s.End(t).Wants(t, "serve", cli.ExitGood)

			empty = cmdtest.FillDisk(t, disk)
			again := &cmdtest.Served{URL: "nats://" + cmdtest.FreeAddress(t), Dir: data}
			command := cmdtest.ServeCommand(t, data, "--listen", strings.TrimPrefix(again.URL, "nats://"))
			ended := make(chan error, 1)
			stdin, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { ended <- command.Wait() }() // ends with the process
			t.Cleanup(func() { _ = command.Process.Kill() })
			degradedUntil(t, ctx, again, "no space left on device")
			empty()
			holdingAgain(t, ctx, again, "c")
			if err := errors.Join(stdin.Close(), <-ended); err != nil {
				t.Errorf("serve that began on a full disk ends with %v", err)
			}
			moves(t, data, "c")
		})
	}
}

// A folder cannot be written when serve starts: status and doctor say so, reads are answered
// where the state can be read, and the work goes on when it can be written.
func TestAReadOnlyDiskIsSaidByStatusAndDoctor(t *testing.T) {
	t.Parallel()
	for folder, reads := range map[string]bool{"tiles": true, "nats": false, "executor/state": false} {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			disk, data, args := onSmallDisk(t, folder)
			metrics := cmdtest.FreeAddress(t)
			args = append(args, "--listen", cmdtest.FreeAddress(t), "--metrics", metrics)
			s := cmdtest.ServeFor(t, data, args...)
			cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p")
			s.Ask(t, "default", "plan", "show", "p").Wants(t, "plan show", cli.ExitGood)
			s.End(t).Wants(t, "serve", cli.ExitGood)
			readOnly(t, disk, true)

			command := cmdtest.ServeCommand(t, data, args...)
			var stderr strings.Builder
			command.Stderr = &stderr
			stdin, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- command.Wait() }() // ends with the process
			t.Cleanup(func() { _ = command.Process.Kill() })
			degradedUntil(t, ctx, s, "read-only file system")
			status := cmdtest.Decoded[api.Status](t, s.Ask(t, "default", "status", "-o", "json"))
			if status.Mode != api.ModeDegraded || !strings.Contains(status.Problem, "read-only file system") ||
				len(status.Disks) == 0 {
				t.Errorf("the status is %+v", status)
			}
			if r := s.Ask(t, "default", "plan", "show", "p"); (r.Code == cli.ExitGood) != reads {
				t.Errorf("a read ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
			if body := readyOf(t, metrics); !strings.Contains(body, `"mode":"degraded"`) ||
				!strings.Contains(body, "read-only file system") {
				t.Errorf("readyz says %s", body)
			}
			if body := scraped(t, metrics, "/metrics"); !strings.Contains(body,
				`sagenbaum_mode{mode="degraded",tenant="default"} 1`) {
				t.Error("no metric says that the tenant is degraded")
			}
			readOnly(t, disk, false)
			holdingAgain(t, ctx, s, "b")
			s.Ask(t, "default", "plan", "show", "p").Wants(t, "plan show", cli.ExitGood)
			if body := scraped(t, metrics, "/metrics"); strings.Contains(body,
				`sagenbaum_mode{mode="degraded",tenant="default"} 1`) {
				t.Error("a metric says that the tenant is degraded still")
			}
			if err := errors.Join(stdin.Close(), <-ended); err != nil {
				t.Errorf("serve ends with %v: %s", err, stderr.String())
			}
			if _, err := os.Stat(filepath.Join(data, "executor", "state.broken")); err == nil {
				t.Error("a state that could not be opened for writing was put away as broken")
			}
		})
	}
}

// A disk runs full beneath a host, and not the ledger's: nothing can be kept of what comes. Whoever
// watches is told so by the modes, as long as that is so.
func TestADiskThatRunsFullBeneathItsHostDegradesTheTenant(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{"tiles": "tiles", "state": "executor"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			disk, data, args := onSmallDisk(t, folder)
			metrics := cmdtest.FreeAddress(t)
			args = append(args, "--listen", cmdtest.FreeAddress(t), "--metrics", metrics)
			s := cmdtest.ServeFor(t, data, args...)
			empty := cmdtest.FillDisk(t, disk)
			conn := cmdtest.Dial(t, s.URL)
			fact := largeFact(t)
			cmdtest.Until(t, ctx, "readyz says that it is degraded", func() bool {
				for range 10 {
					if err := conn.Publish("saga.default.fact.src", fact); err != nil {
						t.Fatal(err)
					}
				}
				body := readyOf(t, metrics)
				return strings.Contains(body, `"ok":false`) && strings.Contains(body, `"mode":"degraded"`) &&
					strings.Contains(body, "waiting for room")
			})
			degradedUntil(t, ctx, s, "waiting for room")
			if body := scraped(t, metrics, "/metrics"); !strings.Contains(body,
				`sagenbaum_mode{mode="degraded",tenant="default"} 1`) ||
				!strings.Contains(body, `sagenbaum_mode{mode="holding",tenant="default"} 0`) {
				t.Error("no metric says that the tenant is degraded")
			}
			if r := s.Ask(t, "default", "tenant", "ls"); !strings.Contains(r.Stdout, "degraded") {
				t.Errorf("tenant ls says %s", r.Stdout)
			}
			empty()
			holdingAgain(t, ctx, s, "b")
			if body := readyOf(t, metrics); !strings.Contains(body, `"ok":true`) {
				t.Errorf("readyz says %s", body)
			}
			s.End(t).Wants(t, "serve", cli.ExitGood)
		})
	}
}

// A disk runs full beneath the host that holds a tenant, and another host has room: that one takes the
// tenant over, and alone answers for it. The first one stands by once it has room.
func TestAHostWithRoomTakesOverFromOneThatWaitsForRoom(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{"tiles": "tiles", "state": "executor"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			flags := []string{"--nats", server.URL(), "--accept-lossy-broker", "--lease-ttl", "2s", "--holder"}
			disk, data, more := onSmallDisk(t, folder)
			first := cmdtest.ServeFor(t, data, append(append(more, flags...), "host-a")...)
			second := cmdtest.ServeFor(t, cmdtest.DataDir(t), append(flags, "host-b")...)
			empty := cmdtest.FillDisk(t, disk)
			conn := cmdtest.Dial(t, server.URL())
			fact := largeFact(t)
			held := func(others string) bool {
				v := cmdtest.Decoded[status.TenantStatus](t, second.Ask(t, "default", "status", "-o", "json"))
				return v.Mode == api.ModeHolding && v.Holder == "host-b" && len(v.Hosts) == 2 &&
					slices.ContainsFunc(v.Hosts, func(h api.Host) bool { return h.Mode == others })
			}
			cmdtest.Until(t, ctx, "host-b holds the tenant, and host-a is degraded", func() bool {
				if err := conn.Publish("saga.default.fact.src", fact); err != nil {
					t.Fatal(err)
				}
				return held(api.ModeDegraded)
			})
			cmdtest.Until(t, ctx, "host-b alone answers", func() bool {
				for range 5 {
					v := cmdtest.Decoded[api.Status](t, second.Ask(t, "default", "status", "-o", "json"))
					if v.Mode != api.ModeHolding || v.Holder != "host-b" {
						return false
					}
				}
				return true
			})
			second.Ask(t, "default", "fact", "put", "later", "1").Wants(t, "fact put", cli.ExitGood)
			empty()
			cmdtest.Until(t, ctx, "host-a stands by", func() bool { return held(api.ModeStandby) })
			second.End(t).Wants(t, "serve of host-b", cli.ExitGood)
			holdingAgain(t, ctx, first, "last")
			first.End(t).Wants(t, "serve of host-a", cli.ExitGood)
		})
	}
}

// largeFact is a commit that fills a disk soon.
func largeFact(t *testing.T) []byte {
	t.Helper()
	fact, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{
		Key: "k", Value: []byte(`"` + strings.Repeat("x", 60_000) + `"`)}}}})
	if err != nil {
		t.Fatal(err)
	}
	return fact
}

func readyOf(t *testing.T, address string) string {
	t.Helper()
	body := scraped(t, address, "/readyz")
	if !json.Valid([]byte(body)) {
		t.Errorf("readyz answers %q", body)
	}
	return body
}

// scraped is a page of --metrics, whatever its code.
func scraped(t *testing.T, address, page string) string {
	t.Helper()
	response, err := http.Get("http://" + address + page)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A holder that cannot go on is not said to be fine.
func TestAHolderThatCannotGoOnIsALook(t *testing.T) {
	t.Parallel()
	full := api.Status{Mode: api.ModeHolding, Problem: "the disk of the tiles is full"}
	if f := doctor.ExamineMode(full, time.Now()); f.State != "FAIL" || !strings.Contains(f.Text, full.Problem) ||
		f.Next == "" {
		t.Errorf("doctor says %+v", f)
	}
	if !status.WantsLook(full) {
		t.Error("status ends with 0")
	}
	if f := doctor.ExamineMode(api.Status{Mode: api.ModeDegraded, Problem: "x"},
		time.Now()); f.State != "FAIL" || f.Next == "" {
		t.Errorf("doctor says of a degraded one %+v", f)
	}
}
