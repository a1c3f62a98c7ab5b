package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

type accessCmd struct {
	who
	Output string `short:"o" default:"-" placeholder:"FILE" help:"Where the file goes, readable by its owner alone; '-' is standard output."`
}

// Help is shown below the flags.
func (accessCmd) Help() string {
	return `Asks the coordinator's own cell and every other one, page by page to the end, and writes one JSON file: every row of every
store, the names of fields that were removed, and each store's Art. 15(1) card. One person at a time.

The file ends with "complete": true only when every store of every cell was read to its end. Otherwise it says what is
missing, keeps the name FILE.incomplete, and the command exits 4.`
}

// storeRead is what came of one store, for the summary and the list of what is missing.
type storeRead struct {
	Cell   string        `json:"cell"`
	Store  string        `json:"store"`
	Status string        `json:"status"` // "read", "failed"
	Count  subject.Count `json:"count"`
	Rows   int           `json:"rows"`
	Detail string        `json:"detail"`

	scrubbed []string
	about    jsontext.Value
}

// accessSummary is the JSON beside the file.
type accessSummary struct {
	Complete   bool        `json:"complete"`
	TenantID   string      `json:"tenant_id"`
	SubjectRef subject.Ref `json:"subject_ref"`
	File       string      `json:"file"`
	Stores     []storeRead `json:"stores"`
}

// accessor is one run of the command.
type accessor struct {
	*session
	person subject.Subject
	file   *accessFile
	ref    subject.Ref
	read   []storeRead
}

// Run writes the file and the summary.
func (c *accessCmd) Run(ctx context.Context, s *session) error {
	people, err := c.people(ctx, s)
	if err != nil {
		return err
	}
	if len(people) != 1 {
		return usagef("access is about one person at a time, and the file names %d", len(people))
	}
	if s.json && c.Output == "-" {
		return usagef("--json prints the summary on standard output, so the file itself needs --output FILE")
	}
	file, err := newAccessFile(c.Output, s.out)
	if err != nil {
		return err
	}
	a := &accessor{session: s, person: people[0].Subject, file: file}
	a.assemble(ctx)
	complete := a.complete()
	path, err := file.finish(complete)
	if err != nil {
		return err
	}
	if err := a.report(path, c.Output == "-"); err != nil {
		return err
	}
	switch {
	case interrupted(ctx):
		return exit(exitInterrupted)
	case !complete:
		return exit(exitFailed)
	default:
		return nil
	}
}

// assemble writes the document, cell by cell. What is missing and whether it is complete stand at its end.
func (a *accessor) assemble(ctx context.Context) {
	a.file.token(jsontext.BeginObject)
	a.file.field("tenant_id", a.person.Tenant())
	a.file.field("generated_at", time.Now().UTC().Format(time.RFC3339))
	a.file.name("cells")
	a.file.token(jsontext.BeginArray)
	for _, t := range a.everyone() {
		a.cell(ctx, t)
	}
	a.file.token(jsontext.EndArray)
	a.unlisted(ctx)
	missing := []storeRead{}
	for _, r := range a.read {
		if r.Status != statusRead {
			missing = append(missing, r)
		}
	}
	a.file.field("subject_ref", string(a.ref))
	a.file.field("missing", missing)
	a.file.field("complete", a.complete())
	a.file.token(jsontext.EndObject)
}

// complete reports whether every store was read to its end.
func (a *accessor) complete() bool {
	return len(a.read) > 0 && !slices.ContainsFunc(a.read, func(r storeRead) bool { return r.Status != statusRead })
}

// unlisted adds the peers that the coordinator knows and nobody gave an address for: they hold data too.
func (a *accessor) unlisted(ctx context.Context) {
	said, err := a.askHealth(ctx, a.coordinator)
	if err != nil {
		a.lose(coordinatorCell, subject.AnyStore, fmt.Errorf("its /health, which names every cell, could not be read: %w", err))
		return
	}
	for _, name := range a.withoutAddress(said.CascadePeers) {
		a.lose(name, subject.AnyStore, errNoAddress)
	}
}

func (a *accessor) lose(cell, store string, err error) {
	a.read = append(a.read, storeRead{Cell: cell, Store: store, Status: "failed", Detail: err.Error()})
}

// cell writes what one cell holds.
func (a *accessor) cell(ctx context.Context, t target) {
	first, err := a.page(ctx, t, a.person, "", a.ref)
	if err == nil {
		a.ref = subject.Ref(first.SubjectRef)
	} else {
		a.lose(t.name, subject.AnyStore, err)
	}
	a.file.token(jsontext.BeginObject)
	a.file.field("cell", t.name)
	a.file.name("stores")
	a.file.token(jsontext.BeginArray)
	for i := range first.Receipts {
		a.store(ctx, t, first.Receipts[i])
		first.Receipts[i] = storeSaid{} // its rows are written: let go of them
	}
	a.file.token(jsontext.EndArray)
	detail := ""
	if err != nil {
		detail = err.Error()
	}
	a.file.field("detail", detail)
	a.file.token(jsontext.EndObject)
}

// store writes one store, following its pages to the end.
func (a *accessor) store(ctx context.Context, t target, said storeSaid) {
	r := storeRead{Cell: t.name, Store: said.Store.Name(), Status: statusRead, about: said.About}
	a.file.token(jsontext.BeginObject)
	a.file.field("store", r.Store)
	a.file.field("backend", said.Backend.Name())
	a.file.name("about")
	if len(said.About) == 0 {
		said.About = jsontext.Value("null")
	}
	a.file.raw(said.About)
	a.file.name("rows")
	a.file.token(jsontext.BeginArray)
	if err := a.rows(ctx, t, said, &r); err != nil {
		r.Status, r.Detail = "failed", err.Error()
	}
	a.file.token(jsontext.EndArray)
	a.file.field("count", r.Count)
	a.file.field("scrubbed", append([]string{}, r.scrubbed...))
	a.file.field("status", r.Status)
	a.file.field("detail", r.Detail)
	a.file.token(jsontext.EndObject)
	a.read = append(a.read, r)
}

// rows writes a store's rows, page by page. The error says why they are not all of them.
func (a *accessor) rows(ctx context.Context, t target, said storeSaid, r *storeRead) error {
	for {
		if err := said.sound(); err != nil {
			return err
		}
		r.Count, _ = said.Count.Count()
		for _, row := range *said.Rows {
			a.file.raw(row)
		}
		r.Rows += len(*said.Rows)
		for _, name := range said.Scrubbed {
			if name = printable(name); !slices.Contains(r.scrubbed, name) {
				r.scrubbed = append(r.scrubbed, name)
			}
		}
		count, _ := r.Count.Value()
		switch {
		case said.NextPageToken == "" && int64(r.Rows) != count:
			return fmt.Errorf("%d rows were read and %d counted: the data changed meanwhile; run it again", r.Rows, count)
		case said.NextPageToken == "":
			return nil
		case len(*said.Rows) == 0, int64(r.Rows) > 2*count+subject.PageRows:
			return fmt.Errorf("its pages have no end")
		}
		next, err := a.page(ctx, t, a.person, string(said.NextPageToken), a.ref)
		if err != nil {
			return err
		}
		found := false
		if said, found = next.find(r.Store); !found {
			return refused(subject.ReasonPeerStoreMissing)
		}
	}
}

// report prints the summary: beside the file when that went to standard output.
func (a *accessor) report(path string, beside bool) error {
	if a.json {
		return a.writeJSON(accessSummary{a.complete(), a.person.Tenant(), a.ref, path, a.read})
	}
	s := *a.screen
	if beside {
		s.out, s.colour, s.width = s.err, s.errIsColours, 0
	}
	rows, total := [][]string{}, 0
	for _, r := range a.read {
		total += r.Rows
		rows = append(rows, []string{
			s.good(r.Status == statusRead), r.Cell, r.Store, number(r.Count), strconv.Itoa(r.Rows), strings.Join(r.scrubbed, ", "), purposes(r.about),
		})
	}
	s.table([]column{
		{title: ""},
		{title: "CELL"},
		{title: "STORE"},
		{title: "COUNT", number: true},
		{title: "ROWS", number: true},
		{title: "REMOVED FIELDS"},
		{title: "PURPOSES", spare: true},
	}, rows)
	s.say("")
	for _, r := range a.read {
		if r.Detail != "" {
			s.say("  %s: %s", s.paint(bold, r.Cell+"/"+r.Store), r.Detail)
		}
	}
	if a.complete() {
		s.say("%s %s: %s of %s read to the end.", s.good(true), s.paint(bold, "complete"), plural(total, "row"), plural(len(a.read), "store"))
	} else {
		s.say("%s %s: this is not everything that is held about the person.", s.good(false), s.paint(bold, "incomplete"))
	}
	s.say("")
	s.field("subject_ref", string(a.ref))
	s.field("file", path)
	return nil
}

// purposes is the part of a card that fits a table.
func purposes(about jsontext.Value) string {
	var card struct {
		Purposes []string `json:"purposes"`
	}
	if len(about) == 0 || decodeLoosely(about, &card) != nil {
		return ""
	}
	words := printable(strings.Join(card.Purposes, ", "))
	if runes := []rune(words); len(runes) > 40 {
		return string(runes[:39]) + "…"
	}
	return words
}
