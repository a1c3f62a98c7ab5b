package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// broken are stores that each break one promise.
var broken = map[string]func(*storetest.Model) subject.Store{
	"folds case":                    func(m *storetest.Model) subject.Store { return foldsCase{m} },
	"trims spaces":                  func(m *storetest.Model) subject.Store { return trims{m} },
	"counts an error as zero":       func(m *storetest.Model) subject.Store { return zeroOnError{m} },
	"deletes all but one":           func(m *storetest.Model) subject.Store { return keepsOne{m} },
	"refuses to delete nothing":     func(m *storetest.Model) subject.Store { return refusesNothing{m} },
	"sees only the first column":    func(m *storetest.Model) subject.Store { return firstColumn{m} },
	"quotes the identity":           func(m *storetest.Model) subject.Store { return quotes{m} },
	"loses a count":                 func(m *storetest.Model) subject.Store { return shortCounts{m} },
	"counts out of order":           func(m *storetest.Model) subject.Store { return reversedCounts{m} },
	"measures without deleting":     func(m *storetest.Model) subject.Store { return idleErase{m} },
	"takes half a batch of rows":    func(m *storetest.Model) subject.Store { return halfAppend{m} },
	"calls every row new":           func(m *storetest.Model) subject.Store { return alwaysNew{m} },
	"drops the last page":           func(m *storetest.Model) subject.Store { return dropsPage{m} },
	"takes any cursor":              func(m *storetest.Model) subject.Store { return anyCursor{m} },
	"points with the identity":      func(m *storetest.Model) subject.Store { return tellingCursor{m} },
	"hides whom a row names":        func(m *storetest.Model) subject.Store { return unidentified{m, m} },
	"shows JSON as text":            func(m *storetest.Model) subject.Store { return textual{m} },
	"forgets to look at other rows": func(m *storetest.Model) subject.Store { return deletesTenant{m} },
}

type foldsCase struct{ *storetest.Model }

func lower(s subject.Subject) subject.Subject {
	folded, err := subject.New(s.Tenant(), strings.ToLower(s.Identity()))
	if err != nil {
		return s
	}
	return folded
}

func (b foldsCase) Count(ctx context.Context, s subject.Subject) (int64, error) {
	return b.Model.Count(ctx, lower(s))
}

type trims struct{ *storetest.Model }

func (b trims) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	if trimmed, err := subject.New(s.Tenant(), strings.TrimSpace(s.Identity())); err == nil {
		s = trimmed
	}
	return b.Model.Delete(ctx, s)
}

type zeroOnError struct{ *storetest.Model }

func (b zeroOnError) Count(ctx context.Context, s subject.Subject) (int64, error) {
	n, _ := b.Model.Count(ctx, s)
	return n, nil
}

type keepsOne struct{ *storetest.Model }

func (b keepsOne) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return b.DeleteSome(ctx, s, 1)
}

type refusesNothing struct{ *storetest.Model }

func (b refusesNothing) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := b.Model.Delete(ctx, s)
	if n == 0 && err == nil {
		err = errors.New("no such row")
	}
	return n, err
}

// firstColumn counts twice what names the subject twice, as a sum over the columns would.
type firstColumn struct{ *storetest.Model }

func (b firstColumn) Count(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := b.Model.Count(ctx, s)
	page, readErr := b.Read(ctx, s, "", 1000)
	for _, row := range page.Rows {
		if row["identity_id"] == row["related_id"] {
			n++
		}
	}
	return n, errors.Join(err, readErr)
}

type quotes struct{ *storetest.Model }

func (b quotes) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := b.Model.Delete(ctx, s)
	if err != nil {
		err = fmt.Errorf("deleting %s: %w", s.Identity(), err)
	}
	return n, err
}

type shortCounts struct{ *storetest.Model }

func (b shortCounts) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	unique := map[subject.Subject]bool{}
	var once []subject.Subject
	for _, s := range subjects {
		if !unique[s] {
			once = append(once, s)
		}
		unique[s] = true
	}
	return b.Model.Counts(ctx, once)
}

type reversedCounts struct{ *storetest.Model }

func (b reversedCounts) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	counts, err := b.Model.Counts(ctx, subjects)
	for i, j := 0, len(counts)-1; i < j; i, j = i+1, j-1 {
		counts[i], counts[j] = counts[j], counts[i]
	}
	return counts, err
}

type idleErase struct{ *storetest.Model }

func (b idleErase) Erase(_ context.Context, subjects []subject.Subject) []subject.Measurement {
	out := make([]subject.Measurement, len(subjects))
	for i := range out {
		out[i].Before, out[i].Remaining = subject.Measured(0), subject.Measured(0)
	}
	return out
}

type halfAppend struct{ *storetest.Model }

func (b halfAppend) Append(ctx context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	var created []bool
	for _, row := range rows {
		c, err := b.Model.Append(ctx, []stores.Row{row}, 0)
		if err != nil {
			return nil, err
		}
		created = append(created, c...)
	}
	return created, ctx.Err()
}

type alwaysNew struct{ *storetest.Model }

func (b alwaysNew) Append(ctx context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	created, err := b.Model.Append(ctx, rows, 0)
	for i := range created {
		created[i] = true
	}
	return created, err
}

type dropsPage struct{ *storetest.Model }

func (b dropsPage) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	page, err := b.Model.Read(ctx, s, cursor, limit)
	if len(page.Rows) < limit && cursor != "" {
		page.Rows = nil
	}
	return page, err
}

type anyCursor struct{ *storetest.Model }

func (b anyCursor) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	if len(cursor) != 0 && len(cursor) != 32 {
		cursor = ""
	}
	return b.Model.Read(ctx, s, cursor, limit)
}

type tellingCursor struct{ *storetest.Model }

func (b tellingCursor) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	page, err := b.Model.Read(ctx, s, strings.TrimPrefix(cursor, s.Identity()+":"), limit)
	if page.Next != "" {
		page.Next = s.Identity() + ":" + page.Next
	}
	return page, err
}

type unidentified struct {
	subject.Store
	subject.Reader
}

func (b unidentified) Append(ctx context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	return b.Store.(stores.Appender).Append(ctx, rows, 0)
}

type textual struct{ *storetest.Model }

func (b textual) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	page, err := b.Model.Read(ctx, s, cursor, limit)
	for _, row := range page.Rows {
		if row["payload"] != nil {
			row["payload"] = fmt.Sprint(row["payload"])
		}
	}
	return page, err
}

type deletesTenant struct{ *storetest.Model }

func (b deletesTenant) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	if bystander, err := subject.New(s.Tenant(), "bob"); err == nil {
		_, _ = b.Model.Delete(ctx, bystander)
	}
	return b.Model.Delete(ctx, s)
}
