// Package files takes images of local files and puts them back: the built-in steps of undos whose
// effect is on files, since few servers of files have a tool that deletes one, and none has one
// that gives a file its mode and time back.
//
// # Model
//
// An Image says what was at some paths: absent, a file (its bytes, mode and times), or a folder.
// Restore makes the paths what the image says, as long as they are what the effect has left:
// what someone has changed since is never overwritten, but reported as a *Changed. Nothing is
// deleted: a file that an effect has made goes to the trash folder.
//
// # Stores
//
// Blobs are the bytes of files that are too large for a record, named by their SHA-256. They are
// on disk before Take returns, and lost with the folder: then the undo that needs them says so.
// The trash is for people, and is not read.
//
// Both operations can be repeated after a crash: what is as it was before is left alone.
package files
