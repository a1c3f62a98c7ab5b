package subject

import (
	"testing"

	"pgregory.net/rapid"
)

func anyStatus() *rapid.Generator[Status] {
	return rapid.SampledFrom([]Status{Failed, Pending, Erased})
}

func TestTheWorseOfTwoStatusesIsASemilattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyStatus().Draw(t, "a"), anyStatus().Draw(t, "b"), anyStatus().Draw(t, "c")
		if a.Worse(b) != b.Worse(a) || a.Worse(b.Worse(c)) != a.Worse(b).Worse(c) || a.Worse(a) != a {
			t.Fatalf("not commutative, associative and idempotent: %v %v %v", a, b, c)
		}
		if a.Worse(Failed) != Failed || a.Worse(Erased) != a {
			t.Fatalf("failed is not the bottom, or erased not the top: %v", a)
		}
	})
}

func receiptOf(s Status) Receipt {
	switch s {
	case Erased:
		return newErased(Label{}, Times{}, Counts{Remaining: Measured(0)})
	case Pending:
		return newPending(Label{}, Times{}, Counts{Remaining: Measured(1)}, ReasonQuota, 0)
	default:
		return NewFailed(Label{}, Times{}, Counts{}, ReasonDeleteFailed)
	}
}

func TestFoldIsAHomomorphismOnNonEmptyLists(t *testing.T) {
	lists := rapid.SliceOfN(rapid.Map(anyStatus(), receiptOf), 1, 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := lists.Draw(t, "a"), lists.Draw(t, "b")
		whole := append(append([]Receipt{}, a...), b...)
		if got, want := Fold(whole), Fold(a).Worse(Fold(b)); got != want {
			t.Fatalf("fold of the whole is %v, of the parts %v", got, want)
		}
	})
}

func TestAnEmptyListIsFailedBecauseNothingWasVerified(t *testing.T) {
	if got := Fold(nil); got != Failed {
		t.Fatalf("got %v", got)
	}
}

func TestAStatusIsReadByteForByte(t *testing.T) {
	for _, s := range []Status{Failed, Pending, Erased} {
		if got, err := ParseStatus(s.String()); err != nil || got != s {
			t.Errorf("%v does not read back: %v %v", s, got, err)
		}
	}
	for _, word := range []string{"", "Erased", "ERASED", " erased", "erased ", "done", "ok"} {
		if got, err := ParseStatus(word); err == nil || got != Failed {
			t.Errorf("%q was read as %v", word, got)
		}
	}
}

func TestTheZeroReceiptIsNotErased(t *testing.T) {
	if (Receipt{}).Status() != Failed {
		t.Fatal("a receipt that nobody made says something better than failed")
	}
}
