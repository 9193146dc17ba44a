package testenv

import (
	"flag"
	"strconv"
)

// Parallel has up to n tests of a package run at a time, where the command line does not say
// how many: for packages whose tests wait for processes and disks more than they work. Call
// it in TestMain.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic("testenv: " + err.Error())
	}
}
