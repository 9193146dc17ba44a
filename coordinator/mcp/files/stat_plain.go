//go:build !unix

package files

import "io/fs"

func owner(fs.FileInfo) string { return "" }

func identity(fs.FileInfo) string { return "" }

func chown(string, string) error { return nil }
