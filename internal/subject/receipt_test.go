package subject

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJudgeFollowsTheTableOfTheDesign(t *testing.T) {
	broken := errors.New("broken")
	notYet := &NotYet{Reason: ReasonStreamingBuffer, After: time.Hour}
	tests := map[string]struct {
		m      Measurement
		status Status
		reason Reason
	}{
		"deleted and gone":                     {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Measured(0)}}, Erased, ""},
		"nothing there and nothing there":      {Measurement{Counts: Counts{Before: Measured(0), Deleted: Measured(0), Remaining: Measured(0)}}, Erased, ""},
		"deleted and still there":              {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Measured(1)}}, Failed, ReasonRowsRemain},
		"deleted, still there, only deferred":  {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(2), Remaining: Measured(1)}, Deferred: notYet}, Pending, ReasonStreamingBuffer},
		"refused for now and gone":             {Measurement{Counts: Counts{Before: Measured(3), Deleted: Unmeasured(), Remaining: Measured(0)}, DeleteErr: notYet}, Erased, ""},
		"refused for now and still there":      {Measurement{Counts: Counts{Before: Measured(3), Deleted: Unmeasured(), Remaining: Measured(3)}, DeleteErr: notYet}, Pending, ReasonStreamingBuffer},
		"delete broke and gone":                {Measurement{Counts: Counts{Before: Measured(3), Deleted: Unmeasured(), Remaining: Measured(0)}, DeleteErr: broken}, Failed, ReasonDeleteFailed},
		"delete broke and still there":         {Measurement{Counts: Counts{Before: Measured(3), Deleted: Unmeasured(), Remaining: Measured(3)}, DeleteErr: broken}, Failed, ReasonDeleteFailed},
		"count broke":                          {Measurement{Counts: Counts{Before: Unmeasured(), Deleted: Measured(3), Remaining: Measured(0)}, CountErr: broken}, Failed, ReasonCountFailed},
		"recount broke":                        {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Measured(0)}, RecountErr: broken}, Failed, ReasonRecountFailed},
		"refused for now and recount broke":    {Measurement{Counts: Counts{Before: Measured(3), Deleted: Unmeasured(), Remaining: Unmeasured()}, DeleteErr: notYet, RecountErr: broken}, Failed, ReasonRecountFailed},
		"nobody recounted":                     {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Unmeasured()}}, Failed, ReasonRecountFailed},
		"negative recount":                     {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Measured(-1)}}, Failed, ReasonNegativeCount},
		"negative count":                       {Measurement{Counts: Counts{Before: Measured(-3), Deleted: Measured(3), Remaining: Measured(0)}}, Failed, ReasonNegativeCount},
		"gone from the table, not from a file": {Measurement{Counts: Counts{Before: Measured(3), Deleted: Measured(3), Remaining: Measured(0)}, PurgeErr: &Fault{Reason: ReasonCheckpointBusy}}, Failed, ReasonCheckpointBusy},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := Judge(Label{}, Times{}, test.m, func(err error, otherwise Reason) Reason { return reasonOf(context.Background(), err, otherwise) })
			if r.Status() != test.status || r.Reason() != test.reason {
				t.Fatalf("got %v %q, want %v %q", r.Status(), r.Reason(), test.status, test.reason)
			}
			if _, measured := r.Counts().Before.Value(); measured && test.m.CountErr != nil {
				t.Error("before is a number although the count failed")
			}
			if _, measured := r.Counts().Remaining.Value(); measured && test.m.RecountErr != nil {
				t.Error("remaining is a number although the recount failed")
			}
			if (r.RetryAfter() > 0) != (r.Status() == Pending) {
				t.Errorf("retry after %v with status %v", r.RetryAfter(), r.Status())
			}
		})
	}
}

func anyCount() *rapid.Generator[Count] {
	return rapid.OneOf(rapid.Just(Unmeasured()), rapid.Map(rapid.Int64Range(-2, 3), Measured), rapid.Map(rapid.Int64(), Measured))
}

func TestNoStatementOfAPeerIsErasedWithoutAMeasuredZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Statement{
			Counts: Counts{Before: anyCount().Draw(t, "before"), Deleted: anyCount().Draw(t, "deleted"), Remaining: anyCount().Draw(t, "remaining")},
			Status: anyStatus().Draw(t, "status"),
			Reason: Reason(rapid.SampledFrom([]string{"", "quota", "alice@example.com"}).Draw(t, "reason")),
		}
		r := Attest(s)
		if r.Status() == Erased && (s.Status != Erased || !s.Remaining.IsZero() || !r.Counts().Remaining.IsZero()) {
			t.Fatalf("erased out of %+v", s)
		}
		if r.Status() < s.Status && r.Reason() == "" {
			t.Fatalf("worsened without a reason: %+v", s)
		}
		if r.Status() > s.Status {
			t.Fatalf("improved to %v: %+v", r.Status(), s)
		}
		if r.Reason() != "" && !r.Reason().Known() {
			t.Fatalf("a peer's own words got through: %q", r.Reason())
		}
	})
}

func TestAFailedReceiptAlwaysHasAReason(t *testing.T) {
	if r := NewFailed(Label{}, Times{}, Counts{}, ""); r.Reason() != ReasonNoReason {
		t.Errorf("got %q", r.Reason())
	}
	if r := NewFailed(Label{}, Times{}, Counts{}, "row of alice"); r.Reason() != ReasonUnknown {
		t.Errorf("got %q", r.Reason())
	}
}
