package cell

import (
	"context"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// Backstop is how the stores of a cell look at its ledger once more, from inside their own append.
func Backstop(ledger suppression.Ledger, table stores.Table) stores.Backstop {
	record := table.Records()
	return func(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
		admitted := make([]bool, len(rows))
		if seen != 0 {
			now, err := ledger.Generation(ctx)
			if err != nil {
				return nil, &subject.Fault{Reason: subject.ReasonSuppression, Cause: err}
			}
			if now == seen {
				for i := range admitted {
					admitted[i] = true
				}
				return admitted, nil
			}
		}
		records := make([]subject.Record, len(rows))
		for i, row := range rows {
			var err error
			if records[i], err = record(row); err != nil {
				return nil, err
			}
		}
		answer, err := ledger.Check(ctx, records)
		if err != nil {
			return nil, &subject.Fault{Reason: subject.ReasonSuppression, Cause: err}
		}
		for i, v := range answer.Verdicts {
			if v == suppression.Fenced && seen != 0 { // who asked while the fence was down asks again
				return nil, &subject.Fault{Reason: subject.ReasonFenced}
			}
			admitted[i] = v == suppression.Admitted || v == suppression.Fenced
		}
		return admitted, nil
	}
}
