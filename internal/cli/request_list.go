package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
	"recount/internal/wire"
)

type requestsCmd struct {
	Tenant string `required:"" placeholder:"TENANT" help:"The tenant whose requests are listed."`
}

// Help is shown below the flags.
func (requestsCmd) Help() string {
	return `The newest come first. DAYS LEFT is until the date by which the person has to be answered (Art. 12(3)), and below 0 when that has
passed. ROWS is what the last preview counted, or what was there when the erasure began.`
}

// requestPage is a page of the list, each request as the server wrote it.
type requestPage struct {
	Requests      []jsontext.Value `json:"requests"`
	NextPageToken string           `json:"next_page_token"`
}

// Run lists page by page.
func (c *requestsCmd) Run(ctx context.Context, s *session) error {
	if err := subject.CheckTenant(c.Tenant); err != nil {
		return usagef("--tenant: %s", err)
	}
	a, err := s.asAdmin()
	if err != nil {
		return err
	}
	all, list, err := a.list(ctx, c.Tenant)
	switch {
	case err != nil:
		return fmt.Errorf("the requests could not be listed: %w", err)
	case s.json:
		return s.writeJSON(all)
	}
	now, open, late := time.Now(), 0, 0
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = s.listRow(r, now)
		if !over(r.State) {
			open++
			if daysLeft(r.DueAt, now) < 0 {
				late++
			}
		}
	}
	if len(rows) > 0 {
		s.table([]column{
			{title: "ID"},
			{title: "STATE"},
			{title: "DUE"},
			{title: "DAYS LEFT", number: true},
			{title: "ROWS", number: true},
			{title: "AGE", number: true},
			{title: "POLICY", spare: true},
		}, rows)
	}
	s.note("%s, %d open, %d overdue.", plural(len(list), "request"), open, late)
	return nil
}

func (s *screen) listRow(r wire.Request, now time.Time) []string {
	left := ""
	if !over(r.State) {
		days := daysLeft(r.DueAt, now)
		left = strconv.Itoa(days)
		switch {
		case days < 0:
			left = s.paint(red, left)
		case days <= 7:
			left = s.paint(yellow, left)
		}
	}
	return []string{
		r.ID, s.stateWord(r.State), r.DueAt.UTC().Format(time.DateOnly), left, rowsOf(r), span(now.Sub(r.ReceivedAt)), printable(r.Policy),
	}
}

// rowsOf is how many rows a request is about, as far as anybody has counted.
func rowsOf(r wire.Request) string {
	if len(r.Stores) > 0 {
		total := int64(0)
		for _, o := range r.Stores {
			n, _ := o.Before.Value()
			total += n
		}
		return strconv.FormatInt(total, 10)
	}
	if r.Preview != nil {
		return strconv.FormatInt(r.Preview.Total, 10)
	}
	return ""
}

// list reads every page, and answers the requests both as they were written and as they are read.
func (a *admin) list(ctx context.Context, tenant string) (all requestPage, list []wire.Request, err error) {
	all.Requests = []jsontext.Value{}
	seen := map[string]bool{}
	for token := ""; ; {
		path := adminPath + "?tenant_id=" + url.QueryEscape(tenant)
		if token != "" {
			path += "&page_token=" + url.QueryEscape(token)
		}
		got, err := a.caller.get(ctx, a.coordinator, path)
		if err := a.accept(ctx, got, err, http.StatusOK); err != nil {
			return all, nil, err
		}
		var page requestPage
		if decodeOwn(got.body, &page) != nil {
			return all, nil, errNotThis
		}
		for _, raw := range page.Requests {
			var r wire.Request
			if decodeOwn(raw, &r) != nil || r.TenantID != tenant || (requestID{r.ID}).check() != nil {
				return all, nil, errNotThis
			}
			all.Requests, list = append(all.Requests, raw), append(list, r)
		}
		if token = page.NextPageToken; token == "" {
			return all, list, nil
		}
		if seen[token] {
			return all, nil, errors.New("its pages have no end")
		}
		seen[token] = true
	}
}
