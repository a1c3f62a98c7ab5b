package subject

import "fmt"

// Status is what a receipt says of one store. The zero value is Failed: what nobody measured is not erased.
type Status uint8

// The three statuses, worst first. The order is the fold's: failed > pending > erased.
const (
	Failed  Status = iota // something could not be erased, or could not be measured
	Pending               // rows remain that the platform will not delete yet: call again
	Erased                // the store was recounted after the delete and held exactly 0 matching rows
)

// String is the word on the wire.
func (s Status) String() string {
	switch s {
	case Erased:
		return "erased"
	case Pending:
		return "pending"
	default:
		return "failed"
	}
}

// ParseStatus reads the word on the wire. It is exact: an unknown or differently-cased word is an error.
func ParseStatus(word string) (Status, error) {
	for _, s := range []Status{Failed, Pending, Erased} {
		if word == s.String() {
			return s, nil
		}
	}
	return Failed, fmt.Errorf("status is none of erased, pending, failed")
}

// Worse is the join of the semilattice failed > pending > erased.
func (s Status) Worse(t Status) Status { return min(s, t) }

// Fold is the worst status of a list of receipts. The fold of no receipts is Failed: nothing was verified.
func Fold(receipts []Receipt) Status {
	if len(receipts) == 0 {
		return Failed
	}
	worst := Erased
	for _, r := range receipts {
		worst = worst.Worse(r.Status())
	}
	return worst
}
