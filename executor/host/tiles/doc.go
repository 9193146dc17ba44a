// Package tiles keeps a tenant's second copy of its ledger on disk, as the tiles of a tree in
// few files that grow, and holds the stream against it: [Writer] adds what is folded, [Files]
// reads beside it, and [Guard] is what guards G1 to G4 are made of at a start.
package tiles
