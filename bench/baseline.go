package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// bare is the erase baseline: the same three statements on database/sql, each with its own fsync and checkpoint. It
// neither scrubs, audits nor serves.
type bare struct {
	db *sql.DB
	mu sync.Mutex // SQLite has one writer; waiting here is faster than on its lock
}

const bareTable = `CREATE TABLE intent_events(row_id TEXT, tenant_id TEXT, identity_id TEXT, source TEXT, source_ref TEXT,
	consent_basis TEXT, derived_from TEXT, ingested_at TEXT, event_type TEXT, occurred_at TEXT, payload TEXT);
	CREATE INDEX by_identity ON intent_events(tenant_id, identity_id);
	CREATE UNIQUE INDEX by_source ON intent_events(tenant_id, source, source_ref)`

func newBare(ctx context.Context, dir, name string) (*bare, error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, name)+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, fmt.Errorf("opening: %w", err)
	}
	if _, err := db.ExecContext(ctx, bareTable); err != nil {
		return nil, fmt.Errorf("making the table: %w", err)
	}
	return &bare{db: db}, nil
}

// insert puts rows in with one prepared statement, so many to a transaction.
func (b *bare) insert(ctx context.Context, people, rows, perCommit int, prefix string) error {
	var tx *sql.Tx
	var statement *sql.Stmt
	written := 0
	commit := func() error {
		if tx == nil {
			return nil
		}
		err := errors.Join(statement.Close(), tx.Commit())
		tx = nil
		return err
	}
	for p := range people {
		for r := range rows {
			if tx == nil {
				var err error
				if tx, err = b.db.BeginTx(ctx, nil); err != nil {
					return fmt.Errorf("beginning: %w", err)
				}
				if statement, err = tx.PrepareContext(ctx, "INSERT INTO intent_events VALUES (?,?,?,?,?,?,?,?,?,?,?)"); err != nil {
					return fmt.Errorf("preparing: %w", err)
				}
			}
			ref := fmt.Sprintf("%s-%d-%d", prefix, p, r)
			if _, err := statement.ExecContext(ctx, "0193a000-0000-7000-8000-"+fmt.Sprintf("%012d", written), "acme", person(prefix, p), "web", ref,
				"consent", nil, "2026-11-01T10:00:00.000000Z", "page_view", "2026-11-01T10:00:00.000000Z", `{"path":"/running-shoes","seconds":17}`); err != nil {
				return fmt.Errorf("inserting: %w", err)
			}
			if written++; written%perCommit == 0 {
				if err := commit(); err != nil {
					return err
				}
			}
		}
	}
	return commit()
}

// erase counts, deletes and counts again, each statement on its own.
func (b *bare) erase(ctx context.Context, identity string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	const where = " FROM intent_events WHERE tenant_id = 'acme' AND identity_id = ?"
	var before, after int
	if err := b.db.QueryRowContext(ctx, "SELECT count(*)"+where, identity).Scan(&before); err != nil {
		return fmt.Errorf("counting: %w", err)
	}
	if _, err := b.db.ExecContext(ctx, "DELETE"+where, identity); err != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	if err := b.db.QueryRowContext(ctx, "SELECT count(*)"+where, identity).Scan(&after); err != nil {
		return fmt.Errorf("recounting: %w", err)
	}
	var busy, log, moved int
	if err := b.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved); err != nil {
		return fmt.Errorf("checkpointing: %w", err)
	}
	if before == 0 || after != 0 || busy != 0 {
		return fmt.Errorf("before %d, after %d, busy %d", before, after, busy)
	}
	return nil
}

// rawImport answers how long so many rows take to insert, 1,000 to a transaction.
func rawImport(ctx context.Context, dir, name string, rows int) (time.Duration, error) {
	b, err := newBare(ctx, dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = b.db.Close() }()
	started := time.Now()
	err = b.insert(ctx, rows/10, 10, 1000, "raw")
	return time.Since(started), err
}
