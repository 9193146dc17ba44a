//go:build !linux

package files

func attributes(string) (string, error) { return "", nil }

func setAttributes(string, string) error { return nil }
