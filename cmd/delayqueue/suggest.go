package main

import (
	"cmp"
	"slices"

	"github.com/agnivade/levenshtein"
)

// nearest is the candidate that a typing error away from text may have been meant, "" if none is near.
func nearest(text string, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	distance := func(c string) int { return levenshtein.ComputeDistance(text, c) }
	best := slices.MinFunc(candidates, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(a, b))
	})
	if distance(best) > max(2, len(text)/4) {
		return ""
	}
	return best
}

// didYouMean is the end of a sentence.
func didYouMean(name, tail string) string {
	if name == "" {
		return ""
	}
	return `: did you mean "` + name + tail + `"?`
}
