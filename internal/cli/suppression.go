package cli

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

type suppressionCmd struct {
	List     listCmd     `cmd:"" help:"List what one cell keeps from coming back."`
	Allow    allowCmd    `cmd:"" help:"Let one source come back into every cell, after a new consent."`
	Backfill backfillCmd `cmd:"" help:"Take up erasures of the past from rows that they left in a table."`
}

type listCmd struct {
	Tenant string `required:"" placeholder:"TENANT" help:"The tenant whose sources are listed."`
	Of     string `placeholder:"CELL" help:"The cell to ask. Default: the coordinator and every other."`
}

// Help is shown below the flags.
func (listCmd) Help() string {
	return `The list holds source references, which are often e-mail addresses: keep it no longer than you need it.`
}

// listed is one line of the list.
type listed struct {
	Cell string `json:"cell"`
	wire.SuppressionEntry
}

// listing is the command's own JSON.
type listing struct {
	TenantID string   `json:"tenant_id"`
	Entries  []listed `json:"entries"`
}

// Run lists cell by cell, page by page.
func (c *listCmd) Run(ctx context.Context, s *session) error {
	if err := subject.CheckTenant(c.Tenant); err != nil {
		return usagef("--tenant: %s", err)
	}
	cells := s.everyone()
	if c.Of != "" {
		one, err := s.cellNamed(c.Of)
		if err != nil {
			return err
		}
		cells = []target{one}
	}
	all := []listed{}
	for _, cell := range cells {
		entries, err := s.suppressed(ctx, cell, c.Tenant)
		if interrupted(ctx) {
			return exit(exitInterrupted)
		}
		if err != nil {
			return fmt.Errorf("%s could not be listed: %w", cell.name, err)
		}
		for _, e := range entries {
			all = append(all, listed{cell.name, e})
		}
	}
	if s.json {
		return s.writeJSON(listing{c.Tenant, all})
	}
	rows := make([][]string, len(all))
	for i, e := range all {
		rows[i] = []string{e.Cell, printable(e.Source), printable(e.SourceRef), printable(e.Reason), e.ErasedAt.Format(time.DateOnly)}
	}
	if len(rows) > 0 {
		s.table([]column{{title: "CELL"}, {title: "SOURCE"}, {title: "SOURCE_REF"}, {title: "REASON", spare: true}, {title: "ERASED"}}, rows)
	}
	s.note("%s kept from coming back.", plural(len(all), "source"))
	return nil
}

// suppressed reads every page of one cell's list.
func (s *session) suppressed(ctx context.Context, cell target, tenant string) (all []wire.SuppressionEntry, err error) {
	for token := ""; ; {
		path := "/v1/suppression?tenant_id=" + url.QueryEscape(tenant)
		if token != "" {
			path += "&page_token=" + url.QueryEscape(token)
		}
		got, err := s.call.get(ctx, cell, path)
		if err != nil {
			return nil, err
		}
		if got.code != http.StatusOK {
			return nil, got.refusal()
		}
		var page wire.SuppressionList
		if decodeLoosely(got.body, &page) != nil || page.Operation != wire.OpSuppressionList || page.TenantID != tenant || page.RequestID != got.requestID {
			return nil, fmt.Errorf("the answer is not one to this list")
		}
		if page.Cell != cell.name {
			return nil, fmt.Errorf("another cell answers there, by the name of %q", printable(page.Cell))
		}
		all = append(all, page.Entries...)
		if token = page.NextPageToken; token == "" {
			return all, nil
		}
	}
}

func (s *session) cellNamed(name string) (target, error) {
	cells := s.everyone()
	at := slices.IndexFunc(cells, func(t target) bool { return t.name == name })
	if at < 0 {
		return target{}, usagef("no cell is called %q: --cell %s=URL", printable(name), printable(name))
	}
	return cells[at], nil
}

type allowCmd struct {
	named
	Reason     string `required:"" placeholder:"TEXT" help:"Why it may come back. Kept in the audit: it must not name the person."`
	ConsentRef string `required:"" placeholder:"REF" help:"Where the new consent is on record. Kept in the audit: it must not name the person."`
	Yes        bool   `help:"Don't ask. For scripts."`
}

// Help is shown below the flags.
func (allowCmd) Help() string {
	return `The next import of this one source lands again. Nothing else is freed: not the person's other sources, and not what derived from
this one. It needs the role 'allow'. On a terminal you type the source to go on; a script says --yes.`
}

// Run asks the person, then the coordinator, which asks every cell.
func (c *allowCmd) Run(ctx context.Context, s *session) error {
	source, err := c.source(ctx, s)
	if err != nil {
		return err
	}
	if !c.Yes {
		if err := s.confirmWord(ctx, "This lets a record of "+printable(c.Source)+" come back that was erased.", c.Source, "nothing was allowed"); err != nil {
			return err
		}
	}
	got, err := s.call.post(ctx, s.coordinator, "/v1/suppression:allow", wire.AllowRequest{
		TenantID: c.Tenant, Source: source.Origin(), SourceRef: source.Reference(), Reason: c.Reason, ConsentRef: c.ConsentRef,
	}, maxAnswer)
	if interrupted(ctx) {
		s.note("Interrupted. Some cells may have let it in; run the command again.")
		return exit(exitInterrupted)
	}
	if err == nil && got.code != http.StatusOK && got.code != http.StatusBadGateway {
		err = got.refusal()
	}
	if err != nil {
		return fmt.Errorf("nothing was allowed: %w", err)
	}
	var said wire.AllowResponse
	if decodeLoosely(got.body, &said) != nil || said.Operation != wire.OpSuppressionAllow || said.TenantID != c.Tenant || said.RequestID != got.requestID {
		return fmt.Errorf("the answer is not one to this request")
	}
	return c.tell(s, said)
}

// tell prints what every cell did. A cell without an answer is one that failed.
func (c *allowCmd) tell(s *session, said wire.AllowResponse) error {
	answered := map[string]wire.CellAllowed{}
	for _, cell := range said.Cells {
		answered[cell.Cell] = cell
	}
	rows, failed, removed := [][]string{}, false, false
	for _, t := range s.everyone() {
		cell, ok := answered[t.name]
		if !ok {
			cell = wire.CellAllowed{Cell: t.name, Status: "failed", Detail: string(subject.ReasonPeerStoreMissing)}
			said.Cells = append(said.Cells, cell)
		}
		word := "was not suppressed here"
		switch {
		case cell.Status != "allowed":
			word, failed = "failed", true
		case cell.Removed:
			word, removed = "may come back", true
		}
		rows = append(rows, []string{t.name, word, printable(cell.Detail)})
	}
	if s.json {
		if failed {
			said.Status = "failed"
		}
		if err := s.writeJSON(said); err != nil {
			return err
		}
	} else {
		s.table([]column{{title: "CELL"}, {title: "SOURCE"}, {title: "DETAIL"}}, rows)
	}
	switch {
	case failed:
		s.note("Not every cell could be asked: run it again.")
		return exit(exitFailed)
	case !removed:
		s.note("No cell had suppressed it: check the tenant, and the spelling of source and reference.")
	}
	return nil
}

// confirmWord has the person type a word before something goes on.
func (s *session) confirmWord(ctx context.Context, warning, word, otherwise string) error {
	if !isTerminal(s.stdin) {
		return usagef("say --yes where there is no terminal to ask on")
	}
	_, _ = fmt.Fprintf(s.err, "%s\nType %s to go on: ", warning, printable(word))
	line, answered := await(ctx, func() string {
		line, _ := bufio.NewReader(s.stdin).ReadString('\n') // a broken-off line is just not the word
		return strings.TrimSpace(line)
	})
	if !answered {
		s.note("")
		return exit(exitInterrupted)
	}
	if line != word {
		return usagef("that is not it; %s", otherwise)
	}
	return nil
}

type backfillCmd struct {
	Of          string `required:"" placeholder:"CELL" help:"The cell whose database has the table."`
	Store       string `placeholder:"STORE" help:"A store of that database, where the cell has several databases."`
	Table       string `required:"" placeholder:"TABLE" help:"The table with the rows that past erasures left."`
	SourceCol   string `required:"" placeholder:"COLUMN" help:"Its column with the source."`
	RefCol      string `required:"" placeholder:"COLUMN" help:"Its column with the source reference."`
	ErasedAtCol string `required:"" placeholder:"COLUMN" help:"Its column with the date of the erasure; rows without one are passed over."`
	ReasonCol   string `placeholder:"COLUMN" help:"Its column with the reason, if there is one."`
	Tenant      string `xor:"tenant" required:"" placeholder:"TENANT" help:"Whose all the rows are."`
	TenantCol   string `xor:"tenant" required:"" placeholder:"COLUMN" help:"Its column with the tenant."`
	Cursor      string `placeholder:"CURSOR" help:"Where an earlier run stopped."`
}

// Help is shown below the flags.
func (backfillCmd) Help() string {
	return `Rows that say which source was erased, and when, are taken into the cell's suppression ledger with that date. What is there already
keeps its own. It may be broken off and run again. Past erasures that left no such row can't be taken up.`
}

// Run goes page by page, and says where it stopped when something fails.
func (c *backfillCmd) Run(ctx context.Context, s *session) error {
	cell, err := s.cellNamed(c.Of)
	if err != nil {
		return err
	}
	asked := wire.BackfillRequest{
		TenantID: c.Tenant, TenantColumn: c.TenantCol, Store: c.Store, Table: c.Table, SourceColumn: c.SourceCol, RefColumn: c.RefCol,
		ErasedAtColumn: c.ErasedAtCol, ReasonColumn: c.ReasonCol, Cursor: c.Cursor,
	}
	var sum wire.BackfillResponse
	for {
		page, err := s.backfillPage(ctx, cell, asked)
		if interrupted(ctx) || err != nil {
			s.note("Stopped after %s (%d recorded, %d rejected). Go on with --cursor %q, or run it again from the start.", plural(sum.Seen, "row"), sum.Recorded, sum.Rejected, asked.Cursor)
		}
		if interrupted(ctx) {
			return exit(exitInterrupted)
		}
		if err != nil {
			return err
		}
		sum.Seen, sum.Recorded, sum.Rejected = sum.Seen+page.Seen, sum.Recorded+page.Recorded, sum.Rejected+page.Rejected
		if asked.Cursor = page.NextCursor; asked.Cursor == "" {
			break
		}
		if s.errTerminal {
			s.note("%s seen, %d recorded", plural(sum.Seen, "row"), sum.Recorded)
		}
	}
	if s.json {
		sum.Cell, sum.Operation = cell.name, wire.OpSuppressionBackfill
		return s.writeJSON(sum)
	}
	s.say("%s %s seen, %d recorded, %d there already, %d rejected.", s.good(sum.Rejected == 0), plural(sum.Seen, "row"), sum.Recorded,
		sum.Seen-sum.Recorded-sum.Rejected, sum.Rejected)
	if sum.Rejected > 0 {
		s.note("A rejected row names no usable tenant, source or date.")
	}
	return nil
}

func (s *session) backfillPage(ctx context.Context, cell target, asked wire.BackfillRequest) (page wire.BackfillResponse, err error) {
	got, err := s.call.post(ctx, cell, "/v1/suppression:backfill", asked, maxAnswer)
	switch {
	case err != nil:
		return page, err
	case got.code == http.StatusUnprocessableEntity:
		return page, fmt.Errorf("%s", got.problemDetail())
	case got.code != http.StatusOK:
		return page, got.refusal()
	}
	if decodeLoosely(got.body, &page) != nil || page.Operation != wire.OpSuppressionBackfill || page.Cell != cell.name || page.RequestID != got.requestID {
		return page, fmt.Errorf("the answer is not one to this request")
	}
	if asked.Cursor != "" && page.NextCursor == asked.Cursor {
		return page, fmt.Errorf("the cell doesn't get any further")
	}
	return page, nil
}
