// Package console is the operator's console: pages about the tenants of one host, and
// the operator's answers, in a browser.
//
// Pages are made on the server from the answers of the query API, of this host's own
// fold, and work without a script. What an operator does becomes a record on the
// operator's own subject, as by the command line: the console has no powers of its own.
// A page follows the fold by server-sent events, which name what has changed; the
// browser then asks for the page again.
//
// It listens on this machine only, unless it has a certificate; see Config. Who acts
// has signed in with a token of the operators' file, which says the name too.
package console
