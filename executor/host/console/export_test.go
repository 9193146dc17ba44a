package console

// Routes are the addresses of the console, with the right that each needs: reads, acts, answers
// or administers.
func Routes() map[string]string {
	names := map[right]string{reads: "reads", acts: "acts", answers: "answers", administers: "administers"}
	all := map[string]string{}
	for _, to := range routes {
		all[to.pattern] = names[to.right]
	}
	return all
}
