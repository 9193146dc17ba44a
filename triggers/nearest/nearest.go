// Package nearest finds the name that was probably meant.
package nearest

// DidYouMean returns a hint that names the nearest candidate, or nothing when none is near.
func DidYouMean(name string, names []string) string {
	best, bound := "", 1+len(name)/3
	for _, candidate := range names {
		if d := distance(name, candidate); d <= bound {
			best, bound = candidate, d-1
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// distance counts the letters to insert, delete or replace between a and b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
