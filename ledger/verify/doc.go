// Package verify checks a bundle offline: its bytes against signed checkpoints, and the
// rules by package audit. It needs the bundle and a public key, and trusts nothing else.
//
// What it cannot tell it says so, and why; nothing is taken as proven for want of a
// reason against it.
package verify
