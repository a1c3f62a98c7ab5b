package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// comesBack tries what would bring the erased subject back: the whole sample again, and a restart of everything. Then it
// lets one record come back by name. It answers how many records were kept out.
func (d *demo) comesBack(ctx context.Context) (kept int, err error) {
	d.step("Importing the whole sample once more, as the next sync would")
	again, err := d.load(ctx)
	if err != nil {
		return 0, err
	}
	d.step("Killing all four services (kill -9) and starting them again")
	for _, s := range d.fleet.All() {
		if err := errors.Join(s.Kill(), s.StartAgain(ctx)); err != nil {
			return 0, err
		}
	}
	rows, err := d.count(ctx)
	switch {
	case err != nil:
		return 0, err
	case rows != 0 || again.Accepted != 0 || again.Suppressed == 0:
		return 0, fmt.Errorf("VERDICT: NOT STICKY: %d rows came back, %d records were kept out", rows, again.Suppressed)
	}
	source, ref, err := d.oneOfTheSubject()
	if err != nil {
		return 0, err
	}
	d.step("A new consent: one record of the subject may come back")
	if err := d.recount(ctx, "suppression", "allow", "--tenant", tenant, "--source", source, "--source-ref", ref,
		"--reason", "consented anew", "--consent-ref", "consent-2026-12", "--yes"); err != nil {
		return 0, err
	}
	third, err := d.load(ctx)
	if err != nil {
		return 0, err
	}
	if rows, err = d.count(ctx); err != nil {
		return 0, err
	}
	if rows != 1 || third.Accepted != 1 || third.Suppressed != again.Suppressed-1 {
		return 0, fmt.Errorf("VERDICT: %d rows came back after one record was allowed, %d were kept out", rows, third.Suppressed)
	}
	return again.Suppressed, nil
}

// oneOfTheSubject is the source of one event of the subject in the sample.
func (d *demo) oneOfTheSubject() (source, ref string, err error) {
	file, err := os.Open(filepath.Join(d.sample, "events.ndjson"))
	if err != nil {
		return "", "", fmt.Errorf("opening the sample: %w", err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var event struct {
			Identity  string `json:"identity_id"`
			Source    string `json:"source"`
			SourceRef string `json:"source_ref"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return "", "", fmt.Errorf("reading the sample: %w", err)
		}
		if event.Identity == identity {
			return event.Source, event.SourceRef, nil
		}
	}
	return "", "", errors.New("the sample has no event of the subject")
}
