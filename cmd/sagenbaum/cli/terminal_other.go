//go:build !unix

package cli

import "os"

// terminalColumns asks a terminal how wide it is; 0: it does not tell.
func terminalColumns(*os.File) int { return 0 }
