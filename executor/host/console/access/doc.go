// Package access says who may do what in the console.
//
// A user has a role on tenants: a reader sees them, an operator acts on them, an admin also
// sees and ends the sessions there. Users come from a file, one a line, which holds hashes of
// their tokens and is read again when it changes, or from an OpenID Connect provider, whose
// claims are mapped to roles and tenants.
//
// Who signs in gets a session, which a cookie names. Sessions are in memory and no more than
// that: each ends with its time, by its user, by an admin, when the user's line changes, and
// with the process. What is done under a session can be made to ask for a confirmation, which
// is good for ConfirmTime and only in the browser that gave it.
//
// Tries to sign in are counted for each address, for each name, and in all. Whatever a visitor
// makes this package remember is bounded.
package access
