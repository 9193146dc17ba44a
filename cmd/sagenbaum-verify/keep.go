package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
)

// keep writes the checkpoint that the next check begins with: never one that does not go on from
// those that this check began with, which would forget records that were kept.
func keep(file string, r *verify.Report, told io.Writer) error {
	switch {
	case file == "" || r.Verdict == verify.Found:
		return nil
	case r.Signed.Note == "":
		return errors.New("cannot keep a checkpoint: none was verified")
	case r.Kept != nil && (!r.Kept.Holds || r.Signed.Size < r.Kept.Size):
		return fmt.Errorf("no checkpoint was kept: it is not shown that the last one that holds, of "+
			"%d records, goes on from the one of --before, of %d", r.Signed.Size, r.Kept.Size)
	}
	had, newer := newerAt(file, r)
	switch {
	case newer:
		fmt.Fprintf(told, "sagenbaum-verify: no checkpoint was kept: %s has one of %d records, and "+
			"this bundle's last one has %d\n", verify.Printable(file), had, r.Signed.Size)
		return nil
	case r.Keep != nil && !r.Keep.Holds:
		return fmt.Errorf("no checkpoint was kept: it is not shown that the last one that holds, "+
			"of %d records, goes on from the one in %s, of %d", r.Signed.Size, file, r.Keep.Size)
	}
	if err := replace(file, r.Signed.Note); err != nil {
		return fmt.Errorf("cannot keep the checkpoint: %w", err)
	}
	return nil
}

// keptIn is what is in the file that a checkpoint is kept in. One that is not there has nothing,
// and one that is no regular file is only written to.
func keptIn(file string) (string, error) {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// newerAt reports whether a file has a checkpoint of the same ledger and of more records, which an
// older bundle must not move back.
func newerAt(file string, r *verify.Report) (size uint64, newer bool) {
	text, err := keptIn(file)
	had, ok := verify.Claimed(text)
	return had.Size, err == nil && ok && had.Origin == ledger.Origin(r.Tenant) &&
		had.Size > r.Signed.Size
}

// replace writes a file as a whole or not at all, where a link points. What is no regular file is
// written to.
func replace(file, text string) error {
	if _, err := os.Lstat(file); err == nil {
		if file, err = filepath.EvalSymlinks(file); err != nil {
			return err
		}
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(file, []byte(text), 0o644)
	}
	next, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = next.WriteString(text)
	err = errors.Join(err, next.Chmod(0o644), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
