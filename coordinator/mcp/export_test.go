package mcp

// Environment is that of a child of a gateway with the variables given.
func (c ServerConfig) Environment(given []string) []string { return c.environment(given) }

// Folder resolves an argument that is a folder.
func Folder(argument string) (string, bool) { return folder(argument) }
