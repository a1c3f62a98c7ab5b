package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	another = "person-phone:+46702246793"
	officer = "dpo@acme.example"
	counsel = "counsel@acme.example"
)

// request takes another subject through an erasure request: filed, previewed, approved by two, run, and verified offline. It
// answers where the report is.
func (d *demo) request(ctx context.Context) (report string, err error) {
	d.step("An erasure request for another subject: filed, and what it would hit, before anything is touched")
	filed, err := d.desk(ctx, officer, "--json", "request", "--tenant", tenant, "--identity-file", "-", "--ground", "17(1)(b)",
		"--received", time.Now().AddDate(0, 0, -3).Format(time.DateOnly), "--policy", "delete")
	if err != nil {
		return "", err
	}
	var r struct {
		ID      string
		Preview struct {
			Digest string
			Total  int64
		}
	}
	if err := json.Unmarshal(filed, &r); err != nil {
		return "", fmt.Errorf("reading the request: %w", err)
	}
	if _, err := d.desk(ctx, officer, "--json", "verify-identity", r.ID, "--method", "signed in, with a second factor"); err != nil {
		return "", err
	}
	if err := d.show(d.desk(ctx, officer, "preview", r.ID)); err != nil {
		return "", err
	}
	seen, err := d.desk(ctx, counsel, "--json", "status", r.ID)
	if code := new(exec.ExitError); err != nil && (!errors.As(err, &code) || code.ExitCode() != exitPending) {
		return "", err
	}
	if err := json.Unmarshal(seen, &r); err != nil {
		return "", fmt.Errorf("reading the request: %w", err)
	}
	if r.Preview.Total == 0 {
		return "", errors.New("the sample holds nothing about the other subject: there is nothing to show")
	}
	d.step("Approved by two, and run to its end")
	if _, err := d.desk(ctx, officer, "--json", "approve", r.ID, "--digest", r.Preview.Digest, "--yes"); err != nil {
		return "", err
	}
	if _, err := d.desk(ctx, officer, "--json", "approve", r.ID, "--digest", r.Preview.Digest, "--yes"); err == nil {
		return "", errors.New("VERDICT: one principal approved twice")
	}
	d.say("%s approved; a second approval of the same principal was refused", officer)
	if err := d.show(d.desk(ctx, counsel, "approve", r.ID, "--digest", r.Preview.Digest, "--yes", "--watch")); err != nil {
		return "", err
	}
	return d.proof(ctx, r.ID)
}

// exitPending is the exit code of a request that is still open.
const exitPending = 3

// proof verifies the certificate offline, and leaves the report as a file.
func (d *demo) proof(ctx context.Context, id string) (string, error) {
	d.step("Its certificate, verified offline by code that shares nothing with what wrote it; and its report")
	folder, err := os.MkdirTemp("", "recount-report-")
	if err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	certificate, opening, report := filepath.Join(folder, "certificate.txt"), filepath.Join(folder, "opening.txt"), filepath.Join(folder, "report.html")
	got, err := d.desk(ctx, officer, "--json", "certificate", id, "--out", certificate, "--opening", opening)
	if err != nil {
		return "", err
	}
	var keys struct{ Keys []string }
	if err := json.Unmarshal(got, &keys); err != nil || len(keys.Keys) == 0 {
		return "", errors.New("the certificate came without a key")
	}
	if err := d.show(d.desk(ctx, officer, "verify", certificate, "--key", keys.Keys[0], "--opening", opening, "--tenant", tenant, "--identity-file", "-")); err != nil {
		return "", err
	}
	text, err := os.ReadFile(certificate) //nolint:gosec // written a moment ago
	if err != nil {
		return "", fmt.Errorf("reading the certificate: %w", err)
	}
	forged := filepath.Join(folder, "forged.txt")
	if err := os.WriteFile(forged, bytes.Replace(text, []byte(`"remaining":0`), []byte(`"remaining":1`), 1), 0o600); err != nil { //nolint:gosec // a folder made above
		return "", fmt.Errorf("forging a certificate: %w", err)
	}
	if _, err := d.desk(ctx, officer, "verify", forged, "--key", keys.Keys[0]); err == nil {
		return "", errors.New("VERDICT: a forged certificate was taken for a good one")
	}
	d.say("the same certificate with one digit changed was refused")
	_ = os.Remove(forged)
	if _, err := d.desk(ctx, officer, "report", id, "--html", report); err != nil {
		return "", err
	}
	return report, nil
}

// desk runs the command line tool as a principal, with the other subject on its standard input, and answers what it printed.
func (d *demo) desk(ctx context.Context, principal string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "recount"), args...) //nolint:gosec // our own binary
	cmd.Env = append(os.Environ(), "RECOUNT_COORDINATOR="+d.fleet.Coordinator.URL, "RECOUNT_CELLS="+d.fleet.CellsEnv(), "RECOUNT_PRINCIPAL="+principal)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(another), &out, &said
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("recount %s: %w: %s", args[0], err, said.String())
	}
	return out.Bytes(), nil
}

// show prints what a command printed.
func (d *demo) show(printed []byte, err error) error {
	_, _ = d.out.Write(printed)
	return err
}
