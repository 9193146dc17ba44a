package sim

// Shrink leaves plans, actors and faults out of a failing run for as long as the same
// rule still fails, and returns what is left of it with its result. A run that does
// not fail comes back as it is.
func Shrink(o Options) (Options, Result) {
	o.Trace, o.Seen = false, nil
	best := Run(o)
	if len(best.Violations) == 0 {
		return o, best
	}
	rule := best.Violations[0].Rule
	try := func(smaller Options) bool {
		if smaller.String() == o.String() {
			return false
		}
		result := Run(smaller)
		if len(result.Violations) == 0 || result.Violations[0].Rule != rule {
			return false
		}
		o, best = smaller, result
		return true
	}
	for again := true; again; {
		again = false
		for _, smaller := range smallerThan(o) {
			smaller.Without, smaller.Drop = smaller.Without|o.Without, smaller.Drop|o.Drop
			smaller.Alone = smaller.Alone || o.Alone
			if o.Hosts != 0 && (smaller.Hosts == 0 || smaller.Hosts > o.Hosts) {
				smaller.Hosts = o.Hosts
			}
			if try(smaller) {
				again = true
			}
		}
	}
	return o, best
}

// smallerThan lists worlds with one thing less.
func smallerThan(o Options) (list []Options) {
	add := func(change func(*Options)) {
		smaller := o
		change(&smaller)
		list = append(list, smaller)
	}
	for n := range plansMax {
		if o.Drop>>n&1 == 0 {
			add(func(s *Options) { s.Drop |= 1 << n })
		}
	}
	if !o.Alone {
		add(func(s *Options) { s.Alone = true })
	}
	for hosts := 1; hosts < 3; hosts++ {
		if o.Hosts == 0 || hosts < o.Hosts {
			add(func(s *Options) { s.Hosts = hosts })
		}
	}
	for _, f := range FaultsOf(o.Seed).List() {
		if !o.Without.Has(f) {
			add(func(s *Options) { s.Without |= 1 << f })
		}
	}
	return list
}

// FaultsOf is the set of faults that a seed may have.
func FaultsOf(seed uint64) Faults { return faultsOf(newRandom(seed, streamFaults)) }
