package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"recount/internal/subject"
)

// table is an honest store: what it counts is what it holds.
type table struct {
	name   string
	mu     sync.Mutex
	rows   map[subject.Subject]int
	refuse int  // how many deletes are still refused as not yet
	broken bool // it answers nothing
	until  time.Time
}

var errBroken = errors.New("broken")

func (t *table) Name() string    { return t.name }
func (t *table) Backend() string { return "memory" }

func (t *table) Count(_ context.Context, s subject.Subject) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return 0, errBroken
	}
	return int64(t.rows[s]), nil
}

func (t *table) Delete(_ context.Context, s subject.Subject) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken {
		return 0, errBroken
	}
	if t.refuse > 0 && t.rows[s] > 0 {
		t.refuse--
		return 0, &subject.NotYet{Reason: subject.ReasonStreamingBuffer, After: time.Second}
	}
	n := t.rows[s]
	delete(t.rows, s)
	return int64(n), nil
}

func (t *table) RecoverableUntil(context.Context, time.Time) (time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, nil
}

func (t *table) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
}

func (t *table) Read(_ context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, _ := strconv.Atoi(cursor)
	to := min(t.rows[s], from+limit)
	page := subject.Page{Rows: []map[string]any{}}
	for i := from; i < to; i++ {
		page.Rows = append(page.Rows, map[string]any{"row_id": fmt.Sprint(i), "note": "a\u009bb", "password": "hunter2"})
	}
	if to < t.rows[s] {
		page.Next = strconv.Itoa(to)
	}
	return page, nil
}

func (t *table) About() subject.Card {
	return subject.Card{Purposes: []string{"testing"}, Retention: "30 days"}
}
