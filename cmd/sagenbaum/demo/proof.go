package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// proof: an auditor with the ledger in one file and one public key checks it alone, and
// finds the copy in which one word was changed.
func (d *Demo) proof(ctx context.Context) error {
	d.act("Proof: an auditor checks it all, with one file and one public key")
	file := filepath.Join(d.World.dir, "demo.bundle")
	forged := filepath.Join(d.World.dir, "forged.bundle")
	d.check(d.executed(ctx, "ledger", "export", "-f", file) == cli.ExitGood,
		"the ledger is exported")
	status, err := d.Client.Status(ctx)
	if err != nil {
		return err
	}
	if status.Checkpoint == nil || status.Checkpoint.Key == "" {
		return errors.New("the server names no key that it signs with")
	}
	key := filepath.Join(d.World.dir, "demo.pub")
	if err := os.WriteFile(key, []byte(status.Checkpoint.Key+"\n"), 0o644); err != nil {
		return err
	}
	r, err := d.verified(file, key)
	if err != nil {
		return err
	}
	d.check(r.Verdict == verify.Proven,
		"every record is proven to be the one that was stored, and to follow the rules")
	if err := forgeBundle(file, forged, "the release branch stays",
		"the release branch moves"); err != nil {
		return err
	}
	d.say("someone changes one word in a copy, and writes a file around it that is right in " +
		"every sum")
	if r, err = d.verified(forged, key); err != nil {
		return err
	}
	d.check(r.Verdict == verify.Found && r.Findings[0].Rule == "I2",
		"the verifier finds it, without asking anybody")
	return nil
}

// verified checks a bundle as sagenbaum-verify does, and shows what that prints.
func (d *Demo) verified(file, key string) (*verify.Report, error) {
	d.say("$ %s", cli.CommandLine("sagenbaum-verify", file, "--key", key, "--at-rest"))
	public, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, err := verify.Check(in,
		verify.Options{Keys: []string{string(bytes.TrimSpace(public))}, AtRest: true})
	if err != nil {
		return nil, err
	}
	fmt.Fprint(d.out, r.Text(filepath.Base(file)))
	return r, nil
}

// forgeBundle copies a bundle with one word changed to another of the same length, as
// someone does who has no key.
func forgeBundle(from, to, word, other string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	b, err := bundle.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, b.Header())
	if err != nil {
		return err
	}
	var tree bundle.Tree
	changed := false
	for {
		item, err := b.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch item.Kind {
		case bundle.Record:
			leaf := bytes.ReplaceAll(item.Data, []byte(word), []byte(other))
			changed = changed || !bytes.Equal(leaf, item.Data)
			tree.Append(ledger.LeafHash(leaf))
			err = w.Record(leaf)
		case bundle.Checkpoint:
			err = w.Checkpoint(item.Note)
		case bundle.End:
			err = w.End(tree.Root())
		default:
			err = errors.New("records are withheld")
		}
		if err != nil {
			return err
		}
	}
	if !changed {
		return fmt.Errorf("no record of %s says %q", from, word)
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}
