package door_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestTheTypeScriptClient runs the tests of coordinator/typescript.
func TestTheTypeScriptClient(t *testing.T) {
	client(t, "node", "../typescript", "--test", "--test-reporter=spec", "test.mjs", "test_door.mjs")
}

// The frameworks whose tools are tested, in these versions.
var frameworks = []string{"ai@6.0.326", "@langchain/core@1.4.0", "@langchain/langgraph@1.7.3",
	"@openai/agents@0.20.0", "zod@4.6.7"}

// TestTheToolsOfFrameworks runs coordinator/typescript/test_frameworks.mjs with what npm has.
func TestTheToolsOfFrameworks(t *testing.T) {
	t.Setenv("FRAMEWORKS", testenv.NPM(t, frameworks...))
	client(t, "node", "../typescript", "--test", "--test-reporter=spec", "test_frameworks.mjs")
}

// TestThePythonClient runs coordinator/python/test_client.py.
func TestThePythonClient(t *testing.T) {
	client(t, "python3", "../python", "-B", "-m", "unittest", "test_client")
}

// client runs the tests of a client against a door that loses one answer of five after the request
// was carried out, and that is killed and opened anew now and then.
func client(t *testing.T, program, dir string, args ...string) {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("*** %s is not installed: the client in %s is NOT tested ***", program, dir)
	}
	if err := exec.CommandContext(t.Context(), path, "--version").Run(); err != nil {
		t.Skipf("*** %s does not run: the client in %s is NOT tested ***: %v", program, dir, err)
	}
	l := newLive(t)
	l.keepsFiles()
	var asked atomic.Int64
	crashes := make(chan struct{}, 1)
	crashes <- struct{}{}
	handler := l.web.Handler()
	lossy := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if n%5 == 0 && r.Method == http.MethodPost {
			handler.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		if n%23 == 0 {
			<-crashes
			l.crash()
			crashes <- struct{}{}
		}
		handler.ServeHTTP(out, r)
	}))
	defer lossy.Close()
	env := append(os.Environ(), "NO_COLOR=1")
	for variable, user := range map[string]string{"SAGENBAUM_CREDS": "tripper", "BOSS_CREDS": "boss",
		"SCANNER_CREDS": "scanner"} {
		creds, err := access.ReadCredentials(l.users.File(user))
		creds.Door = lossy.URL
		var text []byte
		if err == nil {
			text, err = creds.Format()
		}
		file := filepath.Join(t.TempDir(), user)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, variable+"="+file)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir, command.Env = dir, env
	said, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	t.Logf("%d requests", asked.Load())
}

// keepsFiles has a worker keep what is in a file before an agent writes it, as a blob, and put it
// back.
func (l *live) keepsFiles() {
	l.t.Helper()
	l.publish(contract.Contract{Capability: "disk.write", Class: contract.Compensable,
		Late:   contract.LateNever,
		Before: &contract.Before{Call: "disk.keep", With: map[string]any{"path": "=input.path"}},
		Inverse: &contract.Inverse{Call: "disk.restore",
			With: map[string]any{"path": "=input.path", "content": "=before.content"}}})
	blobs := l.work.Blobs()
	type arguments struct {
		Path    string
		Content blob.Ref
	}
	err := errors.Join(
		l.work.Answer("disk.keep", func(ctx context.Context, c api.Command) (a worker.Answer, err error) {
			var with arguments
			if err := json.Unmarshal(c.Arguments, &with); err != nil {
				return a, err
			}
			f, err := os.Open(with.Path)
			if err != nil {
				return a, worker.Stop(err)
			}
			defer func() { _ = f.Close() }()
			ref, err := blobs.Put(ctx, blob.Value{Plan: c.Plan, From: f})
			return worker.Answer{Output: map[string]any{"content": ref}}, err
		}),
		l.work.Handle("disk.restore", func(ctx context.Context, c api.Command) (r worker.Result, err error) {
			var with arguments
			if err := json.Unmarshal(c.Arguments, &with); err != nil {
				return r, err
			}
			f, err := os.Create(with.Path)
			if err != nil {
				return r, err
			}
			return r, errors.Join(blobs.Copy(ctx, f, with.Content), f.Close())
		}))
	if err != nil {
		l.t.Fatal(err)
	}
}
