// Package bundle writes and reads bundles: a ledger, or a part of it, in one file that
// is checked without the system that it came from. Package ledger documents the format
// byte for byte.
package bundle
