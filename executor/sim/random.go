package sim

// random is a PCG (XSH-RR 64/32). Each subsystem and each plan has its own stream,
// so that what one draws changes nothing for another.
type random struct{ state, increment uint64 }

const pcgMultiplier = 6364136223846793005

func newRandom(seed, stream uint64) *random {
	r := &random{increment: stream<<1 | 1}
	r.next()
	r.state += seed*0x9e3779b97f4a7c15 + seed>>32 + 1
	r.next()
	return r
}

func (r *random) next() uint32 {
	old := r.state
	r.state = old*pcgMultiplier + r.increment
	x := uint32((old>>18 ^ old) >> 27)
	rot := uint32(old >> 59)
	return x>>rot | x<<(-rot&31)
}

// below draws from 0..n-1; n is at least 1.
func (r *random) below(n int) int { return int(uint64(r.next()) * uint64(n) >> 32) }

// percent is true in so many of 100 draws.
func (r *random) percent(p int) bool { return r.below(100) < p }

// between draws a span of ns from low to high.
func (r *random) between(low, high int64) int64 {
	if high <= low {
		return low
	}
	wide := uint64(r.next())<<32 | uint64(r.next())
	return low + int64(wide%uint64(high-low+1))
}

// pick draws one of a list.
func pick[T any](r *random, list ...T) T { return list[r.below(len(list))] }
