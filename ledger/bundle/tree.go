package bundle

import (
	"crypto/sha256"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Tree is the part of a Merkle tree that its root needs: a perfect subtree for each bit
// of its size. It grows by leaves and by whole subtrees. The zero Tree is empty.
type Tree struct {
	size  uint64
	nodes []Node // levels fall
}

// Size is the number of leaves.
func (t *Tree) Size() uint64 { return t.size }

// Nodes are the subtrees, from the left.
func (t *Tree) Nodes() []Node { return append([]Node(nil), t.nodes...) }

// Clone is a copy that grows for itself.
func (t *Tree) Clone() Tree { return Tree{t.size, t.Nodes()} }

// Append adds a leaf.
func (t *Tree) Append(leaf ledger.Hash) { t.push(Node{0, leaf}, 1) }

// AppendNode adds a subtree. The error is a *ledger.Refused where none of its size
// may begin.
func (t *Tree) AppendNode(n Node) error {
	if n.Level > levelMax-1 || t.size&(1<<n.Level-1) != 0 || t.size+1<<n.Level < t.size {
		return ledger.Refuse("withheld", fmt.Sprintf("a subtree of level %d after %d records",
			n.Level, t.size), "subtrees in their places")
	}
	t.push(n, 1<<n.Level)
	return nil
}

func (t *Tree) push(n Node, leaves uint64) {
	t.size += leaves
	t.nodes = append(t.nodes, n)
	for k := len(t.nodes); k >= 2 && t.nodes[k-1].Level == t.nodes[k-2].Level; k-- {
		t.nodes[k-2] = Node{t.nodes[k-1].Level + 1,
			ledger.NodeHash(t.nodes[k-2].Hash, t.nodes[k-1].Hash)}
		t.nodes = t.nodes[:k-1]
	}
}

// Root is the hash of the tree, RFC 6962.
func (t *Tree) Root() ledger.Hash {
	if len(t.nodes) == 0 {
		return sha256.Sum256(nil)
	}
	root := t.nodes[len(t.nodes)-1].Hash
	for i := len(t.nodes) - 2; i >= 0; i-- {
		root = ledger.NodeHash(t.nodes[i].Hash, root)
	}
	return root
}

// gap is a run of withheld leaves, as the fewest subtrees that cover it.
type gap struct {
	from, to uint64 // leaves from..to-1
	nodes    []Node
	starts   []uint64
}

func (g *gap) add(n Node) {
	g.nodes, g.starts = append(g.nodes, n), append(g.starts, g.to)
	g.to += 1 << n.Level
	for k := len(g.nodes); k >= 2 && g.nodes[k-1].Level == g.nodes[k-2].Level; k-- {
		level := g.nodes[k-1].Level
		if g.starts[k-2]&(1<<(level+1)-1) != 0 {
			return // its sibling is before the gap
		}
		g.nodes[k-2] = Node{level + 1, ledger.NodeHash(g.nodes[k-2].Hash, g.nodes[k-1].Hash)}
		g.nodes, g.starts = g.nodes[:k-1], g.starts[:k-1]
	}
}
