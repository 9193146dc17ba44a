package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Exit codes, as docs/cli.md lists them.
const (
	exitGood       = 0
	exitLook       = 1  // it worked, and something wants to be looked at
	exitFailed     = 2  // it could not be done
	exitUsage      = 64 // the command line is wrong
	exitNoServer   = 69 // no NATS server, or no executor for the tenant
	exitConflict   = 75 // the log decided otherwise: someone was faster
	exitNotAllowed = 77
)

// failure ends a command: what could not be done, and the next thing to try.
type failure struct {
	code int
	text string
	hint string // a command or a thing to do; may be empty
}

func (f *failure) Error() string { return f.text }

func fail(code int, hint, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...), hint: hint}
}

// errLook ends a command that printed its answer, which wants to be looked at.
var errLook = &failure{code: exitLook}

// finish prints what went wrong and returns the exit code. An error that is no
// failure of ours comes from reading the command line.
func finish(stderr io.Writer, err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &f):
	case errors.Is(err, context.Canceled):
		f = &failure{code: exitFailed, text: "interrupted"}
	default:
		f = &failure{code: exitUsage, text: err.Error(), hint: "sagenbaum --help"}
	}
	if f.text != "" {
		fmt.Fprintln(stderr, "sagenbaum:", printable(f.text))
	}
	if f.hint != "" {
		fmt.Fprintln(stderr, "  next:", printable(f.hint))
	}
	return f.code
}

// failed turns any error of a command into a failure of exit code 2, unless it
// already says more.
func failed(verb string, err error) error {
	var f *failure
	var refused *ledger.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refused):
		return fail(exitFailed, refused.Want, "cannot %s: %s: %s", verb, refused.Field, refused.Problem)
	default:
		return fail(exitFailed, "", "cannot %s: %v", verb, err)
	}
}
