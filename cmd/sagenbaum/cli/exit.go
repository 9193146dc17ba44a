package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Exit codes, as docs/cli.md lists them.
const (
	ExitGood       = 0
	ExitLook       = 1  // it worked, and something wants to be looked at
	ExitFailed     = 2  // it could not be done
	ExitUsage      = 64 // the command line is wrong
	ExitNoServer   = 69 // no NATS server, or no executor for the tenant
	ExitConflict   = 75 // the log decided otherwise: someone was faster, or a host runs
	ExitNotAllowed = 77
)

// Failure ends a command: what could not be done, and the next thing to try.
type Failure struct {
	Code int
	Text string
	Hint string // a command or a thing to do; may be empty

	// Granted says that the server refused what the table of roles gives this user: it has
	// another table.
	Granted bool
}

func (f *Failure) Error() string { return f.Text }

// Fail is an error with its exit code and what to do next.
func Fail(code int, hint, format string, args ...any) error {
	return &Failure{Code: code, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// ErrLook ends a command that printed its answer, which wants to be looked at.
var ErrLook = &Failure{Code: ExitLook}

// Execute runs one command line. Answers go to stdout, everything else to stderr.
func Execute(ctx context.Context, root *cobra.Command, args []string,
	stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return finish(stderr, root.ExecuteContext(ctx))
}

// Main runs the command line of the process until it ends or is interrupted.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Execute(ctx, root, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// finish prints what went wrong and returns the exit code. An error that is no
// failure of ours comes from reading the command line.
func finish(stderr io.Writer, err error) int {
	var f *Failure
	switch {
	case err == nil:
		return ExitGood
	case errors.As(err, &f):
	case errors.Is(err, context.Canceled):
		f = &Failure{Code: ExitFailed, Text: "interrupted"}
	default:
		f = &Failure{Code: ExitUsage, Text: err.Error(), Hint: "sagenbaum --help"}
	}
	if f.Text != "" {
		fmt.Fprintln(stderr, "sagenbaum:", Printable(f.Text))
	}
	if f.Hint != "" {
		fmt.Fprintln(stderr, "  next:", Printable(f.Hint))
	}
	return f.Code
}

// Usage is what a check has refused of a value of the command line; given is its flag, or empty.
func Usage(given string, err error) error {
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	if given != "" {
		given += ": "
	}
	return Fail(ExitUsage, given+refused.Want, "%s", refused.Problem)
}

// ReadSecret reads a file that only its owner may be able to read; given says how else to
// give what is in it.
func ReadSecret(given, path string) ([]byte, error) {
	text, err := access.ReadOwn(given, path)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused):
		return nil, Fail(ExitUsage, refused.Want, "%s", refused.Problem)
	case err != nil:
		return nil, Fail(ExitUsage, given, "%v", err)
	}
	return text, nil
}

// CheckRole refuses a file of credentials of a user with another role than the one that a flag is
// for: the server would refuse it subject by subject. Those that name no role are tried.
func CheckRole(flag, file string, c access.Credentials, want access.Role) error {
	if c.Role == "" || c.Role == want {
		return nil
	}
	return Fail(ExitNotAllowed, fmt.Sprintf("%s FILE of a user with role %s: sagenbaum user add NAME "+
		"--role %s --file USERS --out FILE (docs/security.md)", flag, want, want),
		"%s is of %s, a user with role %s, and role %s is needed", file, c.Name, c.Role, want)
}

// Failed turns any error of a command into a failure of exit code 2, unless it
// already says more.
func Failed(verb string, err error) error {
	var f *Failure
	var refused *ledger.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refused):
		return Fail(ExitFailed, refused.Want, "cannot %s: %s: %s", verb, refused.Field,
			refused.Problem)
	default:
		return Fail(ExitFailed, "", "cannot %s: %v", verb, err)
	}
}
