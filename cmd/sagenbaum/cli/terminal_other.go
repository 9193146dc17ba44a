//go:build !unix

package cli

import "os"

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// terminalColumns asks a terminal how wide it is; 0: it does not tell.
func terminalColumns(*os.File) int { return 0 }
