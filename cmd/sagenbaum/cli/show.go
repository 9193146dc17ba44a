package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// With does work over a connection, which it closes after.
func (s *Settings) With(work func(c *Client) error) error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return work(c)
}

// Connected is a command's work over a connection: it connects first, and closes after.
func (s *Settings) Connected(
	work func(cmd *cobra.Command, args []string, c *Client) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return s.With(func(c *Client) error { return work(cmd, args, c) })
	}
}

// Print writes an answer as data where data is wanted, and else as people read it.
func (s *Settings) Print(cmd *cobra.Command, answer any, people func()) error {
	if s.JSON() {
		return PrintJSON(cmd.OutOrStdout(), answer)
	}
	people()
	return nil
}

// Look is err, or ErrLook where nothing failed and something wants to be looked at.
func Look(err error, wanted bool) error {
	if err == nil && wanted {
		return ErrLook
	}
	return err
}

// PaintColumn paints the cells of one column of a table; the first is 0.
func PaintColumn(column int, paint func(cell string) string) func(int, string) string {
	return func(at int, cell string) string {
		if at == column {
			return paint(cell)
		}
		return cell
	}
}

// PrintLines prints names and values below each other, without those that have no value.
func PrintLines(w io.Writer, lines [][2]string) {
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "%-12s %s\n", line[0], Printable(line[1]))
		}
	}
}
