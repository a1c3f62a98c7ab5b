package subjectapi

import (
	"encoding/json"
	"testing"

	"recount/internal/subject"
)

func TestANumberInARowIsShownAsANumberDigitForDigit(t *testing.T) {
	r := subject.AccessReceipt{Rows: []map[string]any{{
		"payload": map[string]any{"n": json.Number("3"), "f": json.Number("1.50"), "deep": []any{json.Number("12345678901234567890")}},
		"score":   0.25,
	}}}
	got := shown(&r)
	if want := `{"payload":{"deep":[12345678901234567890],"f":1.50,"n":3},"score":0.25}`; string(got.Rows[0]) != want {
		t.Errorf("shown as %s, want %s", got.Rows[0], want)
	}
}
