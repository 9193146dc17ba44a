// Command sagenbaum-verify checks a bundle that `sagenbaum ledger export` has written:
// whether its records are those that were stored, and whether what they say was done
// follows the rules. It needs the file and a public key, no server and no network, and
// shares no code with what it checks but the format of records and the language of
// triggers (docs/audit.md).
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
)

// Exit codes beside those of verify.Report.
const (
	exitCannotTell = 2
	exitUsage      = 64
)

const usage = `usage: sagenbaum-verify BUNDLE --key KEY [--before FILE] [--keep FILE] [--why PLAN] [-o json]

Checks a bundle that "sagenbaum ledger export" has written, offline.

  BUNDLE       the file; - is standard input; write ./ before a name that begins with -,
               or -- before that name
  --key KEY    the public key of the ledger's checkpoints, or a file that has it;
               more than one where the ledger says that a key was lost
  --before F   a signed checkpoint that was kept from before: the ledger must have grown
               from it
  --keep F     write the last checkpoint that holds to a file, for the next time. One of this
               ledger that is there already is held against the bundle as that of --before
               is. It stays where something is found, where the new one does not go on from
               it or from that of --before, or where it has more records
  --at-rest    nothing was under way when the bundle was made: what is owed is missing
  --why PLAN   also print the records of a plan, or with PLAN/ACTION of one action of it:
               cause, lease with what it read, decision, command, outcome
  -o json      the report for programs; text is the default
  --version    the version; alone, as -h

Exit code: 0 everything is proven, 1 something is wrong, 2 something cannot be told;
64 the command line is wrong.
`

type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(text string) error {
	*l = append(*l, text)
	return nil
}

// once is a flag that is given once, and not empty: an empty variable in a script is no wish to
// check less.
type once string

// String implements flag.Value.
func (o *once) String() string { return string(*o) }

// Set implements flag.Value.
func (o *once) Set(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty; leave the flag out if it is not meant")
	case *o != "":
		return errors.New("it is given twice")
	}
	*o = once(text)
	return nil
}

type command struct {
	bundle, before, keep, output string
	why                          string
	keys                         list
	atRest, version              bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c, err := parse(args)
	if len(args) > 1 && (c.version || errors.Is(err, flag.ErrHelp)) { // exit code 0 is a proof
		err = errors.New("--version and -h come alone: a command with one of them checks nothing; " +
			"a file of that name is ./--version or ./-h")
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "sagenbaum-verify: %s\n\n%s", verify.Printable(err.Error()), usage)
		return exitUsage
	case c.version:
		fmt.Fprintln(stdout, version())
		return 0
	}
	report, err := c.check(stdin)
	if err != nil {
		fmt.Fprintln(stderr, "sagenbaum-verify:", verify.Printable(err.Error()))
		return exitCannotTell
	}
	if c.output == "json" {
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		err = out.Encode(report)
	} else {
		_, err = io.WriteString(stdout, report.Text(c.bundle))
	}
	if err != nil {
		fmt.Fprintln(stderr, "sagenbaum-verify: cannot print the report:", err)
		return exitCannotTell
	}
	if err := keep(c.keep, report, stderr); err != nil {
		fmt.Fprintln(stderr, "sagenbaum-verify:", verify.Printable(err.Error()))
		return exitCannotTell
	}
	return report.Exit()
}

// parse takes flags before and after the bundle.
func parse(args []string) (c command, err error) {
	flags := flag.NewFlagSet("sagenbaum-verify", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Var(&c.keys, "key", "")
	flags.Var((*once)(&c.before), "before", "")
	flags.Var((*once)(&c.keep), "keep", "")
	flags.StringVar(&c.output, "o", "text", "")
	flags.BoolVar(&c.atRest, "at-rest", false, "")
	flags.Var((*once)(&c.why), "why", "")
	flags.BoolVar(&c.version, "version", false, "")
	for {
		if err := flags.Parse(args); err != nil {
			return c, err
		}
		if flags.NArg() == 0 {
			break
		}
		if c.bundle != "" {
			return c, fmt.Errorf("one bundle at a time, not also %q", flags.Arg(0))
		}
		c.bundle, args = flags.Arg(0), flags.Args()[1:]
	}
	switch {
	case c.output != "text" && c.output != "json":
		return c, fmt.Errorf("-o is text or json, not %q", c.output)
	case c.bundle == "" && !c.version:
		return c, errors.New("which bundle?")
	}
	return c, nil
}

func (c command) check(stdin io.Reader) (*verify.Report, error) {
	o := verify.Options{AtRest: c.atRest}
	o.Why, o.WhyAction, _ = strings.Cut(c.why, "/")
	for _, key := range c.keys {
		keys, err := readKeys(key)
		if err != nil {
			return nil, err
		}
		o.Keys = append(o.Keys, keys...)
	}
	if c.before != "" {
		note, err := os.ReadFile(c.before)
		if err != nil {
			return nil, fmt.Errorf("cannot read the checkpoint from before: %w", err)
		}
		if o.Before = string(note); strings.TrimSpace(o.Before) == "" {
			return nil, fmt.Errorf("cannot read the checkpoint from before: %s is empty", c.before)
		}
	}
	var err error
	if o.Keep, err = keptIn(c.keep); err != nil {
		return nil, fmt.Errorf("cannot read the checkpoint that is kept already: %w", err)
	}
	in := stdin
	if c.bundle != "-" {
		file, err := os.Open(c.bundle)
		if err != nil {
			return nil, fmt.Errorf("cannot read the bundle: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	files, err := newFiles()
	if err != nil {
		return nil, fmt.Errorf("cannot make a temporary file: %w", err)
	}
	defer files.close()
	o.Memory = files.memory()
	report, err := verify.Check(in, o)
	if err == nil {
		err = files.failed()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot check the bundle: %w", err)
	}
	return report, nil
}

// readKeys takes a key, or the keys in a file, one a line; what begins with # is none.
func readKeys(key string) (keys []string, err error) {
	if strings.Contains(key, "+") && strings.HasPrefix(key, "sagenbaum/") {
		return []string{key}, nil
	}
	data, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	if bytes.HasPrefix(data, []byte(bundle.Magic)) {
		return nil, fmt.Errorf("cannot read the key: %s is a bundle", key)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("cannot read the key: there is none in %s", key)
	}
	return keys, nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "sagenbaum-verify (devel)"
	}
	return "sagenbaum-verify " + info.Main.Version
}
