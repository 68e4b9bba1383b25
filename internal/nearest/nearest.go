// Package nearest finds the name that a misspelled one may be, for errors that say what may be
// meant.
package nearest

import "strings"

// maxWord bounds the words that are compared, in bytes: they may come from anybody. A longer one is
// no misspelled name.
const maxWord = 64

// Name returns the name that a misspelled one may be, the first of several that are as near. It
// returns false if all names differ from it in more than half of its letters. Case, and hyphens for
// underscores, don't count.
func Name(word string, names []string) (name string, ok bool) {
	if len(word) > maxWord {
		return "", false
	}
	least := len(word)/2 + 1
	for _, n := range names {
		if d := Distance(folded(word), folded(n)); d < least {
			name, least, ok = n, d, true
		}
	}
	return name, ok
}

// folded returns a name without the differences that do not count.
func folded(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "_")) }

// Distance returns how many characters have to be changed, added, removed, or exchanged with the
// next one, to make b of a: Levenshtein's distance with transpositions of neighbours.
func Distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	two, one := make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row := make([]int, len(t)+1)
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one = one, row
	}
	return one[len(t)]
}
