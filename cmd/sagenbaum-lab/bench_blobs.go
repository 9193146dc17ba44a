package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// The load of the blobs figure, and its bound.
const (
	blobPlans    = 4 // that capture files, and restore them, at once
	blobFileSize = 1 << 20
	blobPeakMB   = 200 // of memory, in 10^6 bytes, of the server, and of this process
)

// benchBlobs has plans overwrite files whose content is kept as blobs, and fail, so that a worker
// puts it back; every chunk is synced. It fails where a byte differs, or memory is above its bound.
func benchBlobs(ctx context.Context, out io.Writer, b *benching, dir string) error {
	fmt.Fprintln(out, "\nblobs, sync-always")
	// The peak of this process counts from here, where that can be had (proc(5)).
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := serverBinary(ctx, b.server, dir)
	if err != nil {
		return err
	}
	p, err := process.Start(self, dir, "serve", "serve", "--stop-on-eof", "--data",
		filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--tenant", benchTenant, "--console",
		serve.ConsoleOff, "-o", "json")
	if err != nil {
		return err
	}
	defer p.Stop()
	conn, err := connectTo(ctx, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop, err := restoreFiles(ctx, conn)
	if err != nil {
		return err
	}
	defer stop()
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: benchTenant, Agent: "bench",
		Contracts: []contract.Contract{overwrites()}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	plans := make([]overwriting, blobPlans)
	for i := range plans {
		if err := plans[i].begin(ctx, c, filepath.Join(dir, fmt.Sprint("files-", i)),
			b.blobs/blobPlans); err != nil {
			return err
		}
	}
	var took [2]time.Duration
	for i, step := range []func(*overwriting, context.Context) error{
		(*overwriting).overwrite, (*overwriting).undo} {
		began := time.Now()
		ended := make(chan error, len(plans))
		for j := range plans {
			go func() { ended <- step(&plans[j], ctx) }()
		}
		for range plans {
			err = errors.Join(err, <-ended)
		}
		if err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	files := b.blobs / blobPlans * blobPlans
	for i, what := range []string{"captured", "restored, byte for byte"} {
		fmt.Fprintf(out, "  %-34s %9.0f files/s, %d of 1 MiB, %d plans at once\n", what,
			float64(files)/took[i].Seconds(), files, blobPlans)
	}
	return peaks(out, p.Command.Process.Pid)
}

// peaks prints the most memory that the server and this process had, and refuses too much.
func peaks(out io.Writer, server int) error {
	var over error
	for _, of := range []struct {
		name string
		pid  int
	}{{"server", server}, {"agent and worker, one process", os.Getpid()}} {
		mb := float64(statusKB(of.pid, "VmHWM")) * 1024 / 1e6
		if mb == 0 {
			fmt.Fprintf(out, "  %-34s its memory cannot be read here\n", of.name)
			continue
		}
		fmt.Fprintf(out, "  %-34s %9.0f MB of memory at the peak, at most %d wanted\n", of.name, mb,
			blobPeakMB)
		if mb > blobPeakMB {
			over = cli.Fail(cli.ExitFailed, "a machine that does nothing else",
				"%s took %.0f MB", of.name, mb)
		}
	}
	return over
}

// overwrites is a contract whose before-image is the content of a file, as a blob.
func overwrites() contract.Contract {
	return contract.Contract{Capability: "file.overwrite", Class: contract.Compensable,
		Late:   contract.LateNever,
		Before: &contract.Before{Call: "file.read", With: map[string]any{"path": "=input.path"}},
		Inverse: &contract.Inverse{Call: "file.restore", With: map[string]any{
			"path": "=input.path", "content": "=before.content"}}}
}

// restoreFiles serves what overwrites asks for and undoes, until stop.
func restoreFiles(ctx context.Context, conn *nats.Conn) (stop func(), err error) {
	w, err := worker.New(worker.Config{Conn: conn, Tenant: benchTenant, Name: "bench"})
	if err != nil {
		return nil, err
	}
	stop = func() { _ = w.Close(ctx) }
	blobs := w.Blobs()
	type arguments struct {
		Path    string
		Content blob.Ref
	}
	err = errors.Join(
		w.Answer("file.read", func(ctx context.Context, c api.Command) (a worker.Answer, err error) {
			var with arguments
			if err := json.Unmarshal(c.Arguments, &with); err != nil {
				return a, err
			}
			f, err := os.Open(with.Path)
			if err != nil {
				return a, err
			}
			defer func() { _ = f.Close() }()
			ref, err := blobs.Put(ctx, blob.Value{Plan: c.Plan, From: f})
			return worker.Answer{Output: map[string]any{"content": ref}}, err
		}),
		w.Handle("file.restore", func(ctx context.Context, c api.Command) (r worker.Result, err error) {
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
		stop()
	}
	return stop, err
}

// overwriting is a plan that overwrites files.
type overwriting struct {
	plan  *coordinator.Plan
	files []string
	sums  [][sha256.Size]byte // of what was in them
}

// begin writes n files, no two chunks of which are the same.
func (o *overwriting) begin(ctx context.Context, c *coordinator.Coordinator, dir string,
	n int) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	content := make([]byte, blobFileSize)
	for i := range n {
		_, _ = rand.Read(content)
		o.files = append(o.files, filepath.Join(dir, fmt.Sprint(i)))
		o.sums = append(o.sums, sha256.Sum256(content))
		if err := os.WriteFile(o.files[i], content, 0o600); err != nil {
			return err
		}
	}
	o.plan, err = c.Begin(ctx, coordinator.PlanSpec{})
	return err
}

func (o *overwriting) overwrite(ctx context.Context) error {
	for _, file := range o.files {
		_, err := o.plan.Do(ctx, coordinator.Action{Capability: "file.overwrite",
			Input: map[string]any{"path": file}},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{}, os.WriteFile(file, []byte("overwritten"), 0o600)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// undo fails the plan, waits until it is undone, and compares the files with what they were.
func (o *overwriting) undo(ctx context.Context) error {
	if err := o.plan.Fail(ctx, "it was to be undone"); err != nil {
		return err
	}
	if end, err := o.plan.Wait(ctx); err != nil {
		return fmt.Errorf("%v: %w", end, err)
	}
	for i, file := range o.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(content); !bytes.Equal(sum[:], o.sums[i][:]) {
			return fmt.Errorf("%s is not as before: %d bytes", file, len(content))
		}
	}
	return nil
}
