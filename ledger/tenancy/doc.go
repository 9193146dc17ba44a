// Package tenancy is what is wished of tenants: whether each is active or suspended, and what
// it may use. It changes the entries of a control stream, which hosts follow; the stream itself
// is package jetstream's.
//
// An entry is the whole wished state. So a change that was cut off is done or it is not, and to
// ask for it again comes to the same.
package tenancy
