// Package store keeps the folded state of a host's tenants on disk, in one Pebble store:
// [KV] is one tenant's part of it. The store is a cache of the ledgers: one that is lost,
// stale or broken is filled from a snapshot, see [Snapshots], or folded again. How files
// come to disk, and what a full disk does, is here too, for all that a host writes.
package store
