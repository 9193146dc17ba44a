//go:build !unix

package started

// Serve says that this process carries out the undos of a capability in a tenant: to no one, here.
func Serve(string, string, string) (leave func(), err error) { return func() {}, nil }

// Served reports whether another process does: it is not known here, and both may.
func Served(string, string, string) bool { return false }
