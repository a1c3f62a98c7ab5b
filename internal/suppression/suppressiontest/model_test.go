package suppressiontest_test

import (
	"testing"

	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

func TestTheReferenceLedgerConforms(t *testing.T) {
	ledgers := map[string]*suppressiontest.Model{}
	keys := map[string][]string{}
	suppressiontest.Run(t, suppressiontest.Harness{
		Open: func(t *testing.T, place, cell string, k *suppression.Keys) (suppression.Ledger, error) {
			t.Helper()
			key := place + "|" + cell
			if ledgers[key] == nil {
				ledgers[key] = suppressiontest.NewModel()
			}
			if err := k.CheckIDs(keys[key]); err != nil { // the model holds plaintext; it plays along
				return nil, err
			}
			keys[key] = append(keys[key], k.Current())
			return ledgers[key], nil
		},
	})
}
