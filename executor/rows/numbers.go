package rows

import "slices"

// Insert adds n to an ascending list of a row, once.
func Insert(list []uint32, n uint32) []uint32 {
	at, found := slices.BinarySearch(list, n)
	if found {
		return list
	}
	return slices.Insert(list, at, n)
}

// Without removes n from an ascending list of a row.
func Without(list []uint32, n uint32) []uint32 {
	at, found := slices.BinarySearch(list, n)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}
