package storetest_test

import (
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestTheReferenceStoreConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{New: func(_ *testing.T, table stores.Table) subject.Store { return storetest.NewModel(table) }})
}
