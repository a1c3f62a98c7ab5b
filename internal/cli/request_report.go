package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

type reportCmd struct {
	requestID
	HTML  string `name:"html" placeholder:"FILE" help:"Write the report's page there, which prints and asks for nothing from anywhere."`
	Force bool   `help:"Replace the file when it is there already."`
}

// Help is shown below the flags.
func (reportCmd) Help() string {
	return `The report says how far the request has come, and what it can't say. It names nobody; the file is for its owner alone.`
}

// Run prints the report, or writes its page.
func (c *reportCmd) Run(ctx context.Context, s *session) error {
	a, err := c.begin(s)
	if err != nil {
		return err
	}
	if c.HTML != "" {
		if err := free("--html", c.HTML, c.Force); err != nil {
			return err
		}
		if err := c.page(ctx, a); err != nil || !s.json {
			return err
		}
	}
	got, err := a.caller.get(ctx, a.coordinator, adminPath+"/"+c.ID+"/report")
	if err := a.accept(ctx, got, err, http.StatusOK); err != nil {
		return unread("report", err)
	}
	var r wire.Report
	if decodeOwn(got.body, &r) != nil || r.RequestID != c.ID {
		return unread("report", errNotThis)
	}
	if s.json {
		return a.writeRaw(got.body)
	}
	s.showReport(r)
	return nil
}

func unread(what string, err error) error { return fmt.Errorf("no %s: %w", what, err) }

func (c *reportCmd) page(ctx context.Context, a *admin) error {
	got, err := a.caller.get(ctx, a.coordinator, adminPath+"/"+c.ID+"/report.html")
	if err := a.accept(ctx, got, err, http.StatusOK); err != nil {
		return unread("report", err)
	}
	if mediaType(got.header) != "text/html" {
		return unread("report", errors.New("the answer is not a page"))
	}
	if err := keep("--html", c.HTML, c.Force, got.body); err != nil {
		return err
	}
	a.note("%s The report is in %s", a.good(true), c.HTML)
	return nil
}

func (s *screen) showReport(r wire.Report) {
	s.say("%s %s  %s", s.stateMark(r.Outcome), s.stateWord(r.Outcome), s.paint(faint, r.RequestID))
	s.field("clock", clockOf(r.Request, r.GeneratedAt))
	s.field("rows", counted(r.RowsBefore)+" before, "+counted(r.RowsRemaining)+" left")
	s.field("recoverable", momentOf(r.Recoverable))
	s.field("backups", backups(r.BackupHorizon))
	s.field("ledger", fmt.Sprintf("%d of its entries are about this", len(r.Entries)))
	s.field("logs", fmt.Sprintf("kept %s", plural(r.LogAttestation.RetentionDays, "day")))
	s.say("")
	rows := make([][]string, len(r.Request.Stores))
	for i, o := range r.Request.Stores {
		rows[i] = []string{
			s.storeMark(o.Status), printable(o.Cell), printable(o.Store), number(o.Before), number(o.Deleted), number(o.Remaining),
			momentOf(o.RecoverableUntil), basisOf(o), printable(o.Detail), printable(o.Backend),
		}
	}
	if len(rows) > 0 {
		s.table([]column{
			{title: ""},
			{title: "CELL"},
			{title: "STORE"},
			{title: "BEFORE", number: true},
			{title: "DELETED", number: true},
			{title: "LEFT", number: true},
			{title: "RECOVERABLE UNTIL", spare: true},
			{title: "RETAINED"},
			{title: "DETAIL"},
			{title: "BACKEND", spare: true},
		}, rows)
		s.say("")
	}
	for _, st := range r.Request.Stages {
		s.say("  %s %s%s", s.stageMark(st.Status), printable(st.Name), withDetail(st.Detail))
	}
	for i, limit := range r.Limits {
		if i == 0 {
			s.say("")
			s.say("  %s", s.paint(faint, "What this can't say"))
		}
		s.say("  – %s", printableUpTo(limit, 500))
	}
}

// free refuses a file that is there already, before anything is asked for.
func free(flag, path string, force bool) error {
	if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
		return usagef("%s: the file is there already; --force replaces it", flag)
	}
	return nil
}

// keep writes a file for its owner alone: whole, or not at all. It replaces nothing without force.
func keep(flag, path string, force bool, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".recount-"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-*") // with mode 0600
	if err != nil {
		return usagef("%s can't be written: %s", flag, bare(err))
	}
	defer func() { _ = os.Remove(file.Name()) }() // gone already where it was renamed
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	switch {
	case err != nil:
	case force:
		err = os.Rename(file.Name(), path)
	default:
		err = os.Link(file.Name(), path) // unlike a rename, it replaces nothing
	}
	return broke(err)
}

// backups says when none holds the data any more, if anybody has said how long they are kept.
func backups(until *time.Time) string {
	if until == nil {
		return "not stated by the operator"
	}
	return "gone by " + moment(*until)
}

func counted(c subject.Count) string {
	if n, measured := c.Value(); measured {
		return strconv.FormatInt(n, 10)
	}
	return "–"
}
