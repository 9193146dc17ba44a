package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	watchEvery    = time.Second
	watchEveryMin = 100 * time.Millisecond
)

// errOver ends --watch: what was watched cannot change any more. The command's answer
// counts then.
type errOver struct{ error }

// Over ends --watch with err, the command's answer.
func Over(err error) error { return errOver{err} }

// Watchable adds --watch to a command that shows something: it is run again and again,
// and drawn where it changed. On a terminal it is drawn in place, in a pipe one after
// the other. It ends with an interrupt, with exit code 0, or when nothing of what it
// shows can change any more, with the command's own.
func Watchable(s *Settings, cmd *cobra.Command) *cobra.Command {
	var watch bool
	var every time.Duration
	cmd.Flags().BoolVarP(&watch, "watch", "w", false,
		"show it again whenever it changes, until an interrupt or its end")
	cmd.Flags().DurationVar(&every, "every", watchEvery, "with --watch: `TIME` between two looks")
	show := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return onceOnly(show(cmd, args))
		}
		if every < watchEveryMin {
			return Fail(ExitUsage, "--every 1s", "looking every %s is too often", every)
		}
		return watchOn(s, cmd, args, show, every)
	}
	return cmd
}

// onceOnly is what a command that is not watched ends with.
func onceOnly(err error) error {
	if last := (errOver{}); errors.As(err, &last) {
		return last.error
	}
	return err
}

func watchOn(s *Settings, cmd *cobra.Command, args []string,
	show func(*cobra.Command, []string) error, every time.Duration) error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	c.shared, s.shared = true, c // one connection for all looks
	defer func() {
		c.shared, s.shared = false, nil
		c.Close()
	}()
	screen := newRedraw(cmd.OutOrStdout())
	cmd.SetOut(screen.out())
	defer cmd.SetOut(screen.to)
	for {
		err := show(cmd, args)
		var last errOver
		var f *Failure
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case errors.As(err, &last):
			screen.draw()
			return last.error
		case errors.As(err, &f) && f.Code == ExitNoServer: // it may come back
			screen.hold.Reset()
			fmt.Fprintf(screen.hold, "%s; looking again\n", Printable(f.Text))
		case err != nil && !errors.Is(err, ErrLook):
			return err
		}
		screen.draw()
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
}

// redraw holds back one answer and writes it where it differs from the one before.
type redraw struct {
	to       io.Writer
	yaml     *YamlOut // to, where -o yaml writes
	hold     *bytes.Buffer
	last     string
	drawn    bool
	terminal bool
}

func newRedraw(to io.Writer) *redraw {
	r := &redraw{to: to, hold: new(bytes.Buffer)}
	r.yaml, _ = to.(*YamlOut)
	r.terminal = ColumnsOf(to) > 0
	return r
}

// out is what the command writes to.
func (r *redraw) out() io.Writer {
	if r.yaml != nil {
		return &YamlOut{Writer: r}
	}
	return r
}

// Write is as in io.Writer.
func (r *redraw) Write(p []byte) (int, error) { return r.hold.Write(p) }

// passing are times as seen from now, which change by themselves.
var passing = regexp.MustCompile(`\b(in )?([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+( ago)?`)

// same reports whether an answer says nothing new. In a pipe that a time has passed is
// nothing new; on a terminal it is drawn.
func (r *redraw) same(text string) bool {
	if r.terminal {
		return text == r.last
	}
	return passing.ReplaceAllString(text, "") == passing.ReplaceAllString(r.last, "")
}

// draw writes what is held where it is new.
func (r *redraw) draw() {
	text := r.hold.String()
	r.hold.Reset()
	if r.drawn && r.same(text) {
		return
	}
	switch {
	case r.terminal: // from the top; each line clears what was right of it, the end what was below
		fmt.Fprint(r.to, "\x1b[H", strings.ReplaceAll(text, "\n", "\x1b[K\n"), "\x1b[J")
	case r.drawn && r.yaml == nil && !strings.HasPrefix(text, "{"):
		fmt.Fprint(r.to, "\n", text)
	default:
		fmt.Fprint(r.to, text)
	}
	r.last, r.drawn = text, true
}
