package scheduler

// readInTurn is how many guests' pages are read whole in each round although nothing says that they
// have changed. Executors announce contexts and launches that come, so others need not be looked
// for; but executors of older versions announce less, and hostile ones nothing. On a GPU with up to
// this many guests every page is read in every round.
const readInTurn = 16

// inTurn chooses the guests that are read in any case: the next ones in each round.
type inTurn struct{ first, guests int }

// begin begins a round of a number of guests.
func (t *inTurn) begin(guests int) {
	t.guests = guests
	if t.first += readInTurn; t.first >= guests {
		t.first = 0
	}
}

// includes reports whether the guest at an index is read in any case.
func (t *inTurn) includes(i int) bool {
	return i >= t.first && i < t.first+readInTurn || t.guests <= readInTurn
}
