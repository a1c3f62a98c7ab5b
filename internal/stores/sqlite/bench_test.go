package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

const rowsPerSubject = 3

// BenchmarkErase compares an erasure with what it is made of: the same count, delete and count on bare database/sql,
// each erasure synced and checkpointed, by one client.
func BenchmarkErase(b *testing.B) {
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("ours/clients=%d", clients), func(b *testing.B) {
			_, store, subjects := crowd(b, b.N)
			next := atomic.Int64{}
			b.ResetTimer()
			runClients(clients, func() bool {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					return false
				}
				m := store.Erase(b.Context(), subjects[i:i+1])[0]
				if m.DeleteErr != nil || m.PurgeErr != nil || !m.Remaining.IsZero() {
					b.Errorf("measured %+v", m)
				}
				return true
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "erasures/s")
		})
	}
	b.Run("bare/clients=1", benchmarkBare)
}

// BenchmarkEraseMany erases all subjects in calls of 1,000.
func BenchmarkEraseMany(b *testing.B) {
	_, store, subjects := crowd(b, b.N)
	b.ResetTimer()
	for at := 0; at < b.N; at += 1000 {
		for _, m := range store.Erase(b.Context(), subjects[at:min(at+1000, b.N)]) {
			if m.DeleteErr != nil || m.PurgeErr != nil || !m.Remaining.IsZero() {
				b.Fatalf("measured %+v", m)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "erasures/s")
}

// BenchmarkAppend writes rows 500 at a time.
func BenchmarkAppend(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "cell.db"))
	store := table(b, db, storetest.EventsTable())
	rows := make([]stores.Row, b.N)
	for i := range rows {
		rows[i] = storetest.NewRow(storetest.EventsTable(), tenant, "crm", fmt.Sprintf("ref-%d", i), fmt.Sprintf("person-%d", i*7919%b.N))
	}
	b.ResetTimer()
	for at := 0; at < b.N; at += 500 {
		add(b, store, rows[at:min(at+500, b.N)]...)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func runClients(n int, once func() bool) {
	done := make(chan struct{})
	for range n {
		go func() {
			for once() {
			}
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
}

// crowd is a table of n subjects, each with a few rows.
func crowd(b *testing.B, n int) (*sqlite.DB, *sqlite.Table, []subject.Subject) {
	b.Helper()
	db := open(b, filepath.Join(b.TempDir(), "cell.db"))
	store := table(b, db, storetest.EventsTable())
	subjects := make([]subject.Subject, n)
	var rows []stores.Row
	for range rowsPerSubject {
		for i := range subjects {
			identity := fmt.Sprintf("person-%d@example.test", i)
			subjects[i] = who(b, identity)
			rows = append(rows, rowsOf(storetest.EventsTable(), identity, 1)...)
			if len(rows) == 1000 {
				add(b, store, rows...)
				rows = rows[:0]
			}
		}
	}
	add(b, store, rows...)
	return db, store, subjects
}

func benchmarkBare(b *testing.B) {
	path := filepath.Join(b.TempDir(), "cell.db")
	db, err := sqlite.Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	fillBare(b, db)
	bare, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=secure_delete(ON)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close() //nolint:errcheck // a benchmark's own file
	bare.SetMaxOpenConns(1)
	ctx := context.Background()
	b.ResetTimer()
	for i := range b.N {
		args := []any{tenant, fmt.Sprintf("person-%d@example.test", i)}
		var n, busy, a, c int64
		if err := bare.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE tenant_id=? AND identity_id=?", args...).Scan(&n); err != nil || n != rowsPerSubject {
			b.Fatal(n, err)
		}
		if _, err := bare.ExecContext(ctx, "DELETE FROM events WHERE tenant_id=? AND identity_id=?", args...); err != nil {
			b.Fatal(err)
		}
		if err := bare.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &a, &c); err != nil || busy != 0 {
			b.Fatal(busy, err)
		}
		if err := bare.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE tenant_id=? AND identity_id=?", args...).Scan(&n); err != nil || n != 0 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "erasures/s")
}

func fillBare(b *testing.B, db *sqlite.DB) {
	b.Helper()
	store := table(b, db, storetest.EventsTable())
	for range rowsPerSubject {
		var rows []stores.Row
		for i := range b.N {
			rows = append(rows, rowsOf(storetest.EventsTable(), fmt.Sprintf("person-%d@example.test", i), 1)...)
		}
		add(b, store, rows...)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}
